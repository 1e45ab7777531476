"""What a bar knows of the whole run: where in an epoch it ends, and how long it still takes."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

from trainer_hooks.clock import TimeUnit

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["RunTime", "last_batch"]


def last_batch(trainer: Trainer) -> int | float:
    """Return after how many batches of the epoch under way the run's limits end it.

    It is infinity where they do not, or where nobody can know, as with wall time.
    """
    progress, duration = trainer.progress, trainer.max_duration
    left = math.inf
    module = trainer.module
    # one that optimizes by itself steps as often as it likes
    if trainer.max_steps >= 0 and module is not None and module.automatic_optimization:
        windows = trainer.max_steps - progress.steps_completed
        left = windows * trainer.accumulate_grad_batches - progress.batches_in_window
    if duration is not None and duration.unit is TimeUnit.BATCH:
        left = min(left, int(duration) - progress.batches_completed)
    elif duration is not None and duration.unit is TimeUnit.SAMPLE:
        size = getattr(trainer.train_dataloader, "batch_size", None)
        if isinstance(size, int):
            left = min(left, math.ceil((int(duration) - progress.samples_completed) / size))
    return progress.batches_in_epoch + max(left, 0)


class RunTime:
    """How long the whole run still takes, at the pace that it has had, validations included."""

    def __init__(self) -> None:
        self._began = 0.0
        self._share = 0.0

    def start(self, trainer: Trainer) -> None:
        """Begin to watch a run; what was trained before it is in no pace."""
        self._began, self._share = monotonic(), trainer.clock.share_done

    def left(self, trainer: Trainer) -> float | None:
        """Return the seconds left, None where nothing can be said or only this epoch is left."""
        is_last = trainer.current_epoch + 1 >= trainer.max_epochs >= 0
        if is_last or last_batch(trainer) <= trainer.num_training_batches:
            return None
        share = trainer.clock.share_done
        done = share - self._share
        return (1 - share) * (monotonic() - self._began) / done if done > 0 else None
