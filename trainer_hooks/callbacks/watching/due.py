"""When what is watched in training goes to the loggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["closes_window", "evaluation_step", "is_logged", "will_be_logged"]


def closes_window(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the batch just done closed an optimizer's window."""
    return trainer.progress.batches_in_window == 0


def is_logged(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the loggers are given values of this batch."""
    is_due = trainer.progress.batches_stepped % trainer.log_every_n_steps == 0
    return is_due and closes_window(trainer)


def will_be_logged(trainer: Trainer) -> bool:
    """Return, before a step is made, whether the loggers are given values of it."""
    return (trainer.progress.batches_stepped + 1) % trainer.log_every_n_steps == 0


def evaluation_step(trainer: Trainer, batch_idx: int) -> int | None:
    """Return the step under which an evaluation batch is logged; None if it is not.

    In a fit it is that of the training, and elsewhere the batch's number.
    """
    if trainer.sanity_checking or (batch_idx + 1) % trainer.log_every_n_steps:
        return None
    return trainer.progress.batches_stepped if trainer.state.fn == "fit" else batch_idx
