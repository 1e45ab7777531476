"""When what is watched in training goes to the loggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["closes_window", "is_logged"]


def closes_window(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the batch just done closed an optimizer's window."""
    return trainer.progress.batches_in_window == 0


def is_logged(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the loggers are given values of this batch."""
    is_due = trainer.progress.batches_stepped % trainer.log_every_n_steps == 0
    return is_due and closes_window(trainer)
