"""When validation is due inside fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer_hooks.clock import Filter, Time
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.stored_cue import StoredCue

__all__ = ["ValidationSchedule"]


class ValidationSchedule:
    """When validation is due inside fit.

    Args:
        context: the run.
        num_batches: training batches an epoch.

    Attributes:
        is_on: whether there is anything to validate.
        every: batches after which to see whether one is due, or infinity: the end of the epoch.
        is_inside: whether one may be due inside an epoch.

    Raises:
        OptionError: `val_check_interval` does not fit the number of batches.
    """

    def __init__(self, context: RunContext, num_batches: int | float) -> None:
        self._context = context
        self.is_on = bool(context.data.evaluation["validate"])
        interval = context.plan.val_check_interval
        self._time = interval if isinstance(interval, Time) else None
        self._cue: StoredCue | None = None
        if isinstance(interval, Filter):
            from trainer_hooks.loops.stored_cue import StoredCue

            self._cue = StoredCue("", interval, context)
        self.every = self._batches_between(num_batches) if self.is_on else math.inf
        self.is_inside = self.every < math.inf or (self.is_on and self._cue is not None)

    def start(self) -> None:
        """Begin to ask, or go on where the checkpoint was saved."""
        if self._cue is not None:
            self._cue.start()

    def note(self) -> None:
        """Note that what was due is done."""
        if self._cue is not None:
            self._cue.note()

    def is_due_on_batch(self) -> bool:
        """Return whether a validation is due after the batch just done, inside the epoch.

        One that was asked for is, unless the epoch's own validation is what comes next.
        """
        progress = self._context.training.progress
        is_cued = self._cue is not None and self._cue.is_due()
        if is_cued or (progress.is_validation_requested and not self._context.batch.is_last):
            return True
        if self.every == math.inf:
            return False
        if self._time is not None:
            keeper = self._context.training.timekeeper
            return self._is_due_in_epoch() and keeper.is_passed(self._time, progress)
        if self._context.plan.check_val_every_n_epoch is None:
            return progress.batches_completed % self.every == 0
        return progress.batches_in_epoch % self.every == 0 and self._is_due_in_epoch()

    def is_due_after_batches(self, *, is_complete: bool) -> bool:
        """Return whether a validation is due at the end of the epoch's batches.

        It is after what may be the last batches of all, too, so that the final weights are
        validated and what watches a metric finds it; and where it was asked for. Weights that were
        validated already are not validated again.

        Args:
            is_complete: whether all batches of the epoch were done; else something ended it.
        """
        progress = self._context.training.progress
        is_cued = self._cue is not None and self._cue.is_due()
        if progress.validated_at == progress.batches_completed:
            self.note()  # so that a resume does not find it due once more
            return False
        if progress.is_validation_requested or is_cued:
            return True
        is_at_end = not self.is_inside or not is_complete or self._context.has_to_stop
        return self.is_on and is_at_end and self._is_due_in_epoch()

    def _is_due_in_epoch(self) -> bool:
        every_n = self._context.plan.check_val_every_n_epoch
        return (
            every_n is None or (self._context.training.progress.epochs_completed + 1) % every_n == 0
        )

    def _batches_between(self, num_batches: int | float) -> int | float:
        plan = self._context.plan
        interval = plan.val_check_interval
        if isinstance(interval, Time):
            return 1
        if isinstance(interval, Filter):
            return math.inf
        if isinstance(interval, int):
            if plan.check_val_every_n_epoch is not None and interval > num_batches:
                raise OptionError(
                    f"Trainer(val_check_interval={interval!r}): an epoch has {num_batches} "
                    "batches, so validation would never run. Give a smaller number, or count over "
                    "epochs with check_val_every_n_epoch=None."
                )
            return interval
        if interval == 1.0:
            return math.inf
        if num_batches == math.inf:
            raise OptionError(
                f"Trainer(val_check_interval={interval!r}) is a share of an epoch, but the "
                "training loader has no length: give a number of batches as an int."
            )
        return max(1, int(num_batches * interval))
