"""The batches whose values monitors log: each `log_every_n_steps`-th step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer

__all__ = ["closes_window", "evaluation_step", "is_logged", "will_be_logged"]


def closes_window(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the batch closed an accumulation window."""
    return trainer.progress.batches_in_window == 0


def is_logged(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the loggers get values of this batch."""
    is_due = trainer.progress.batches_stepped % trainer.log_every_n_steps == 0
    return is_due and closes_window(trainer)


def will_be_logged(trainer: Trainer) -> bool:
    """Return, before an optimizer step, whether the loggers get values of that step."""
    # the counter is raised after the step, so the coming one is the next
    return (trainer.progress.batches_stepped + 1) % trainer.log_every_n_steps == 0


def evaluation_step(trainer: Trainer, batch_idx: int) -> int | None:
    """Return the step under which a batch of an evaluation is logged; None if it is not.

    In a fit it is the step of the training, elsewhere the batch's index.
    """
    if trainer.sanity_checking or (batch_idx + 1) % trainer.log_every_n_steps:
        return None
    return trainer.progress.batches_stepped if trainer.state.fn == "fit" else batch_idx
