"""Decide when validation is due inside fit, in a way that a resume continues."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks._text import count_with_noun
from trainer_hooks.clock.schedules import DueCondition, DueTracker
from trainer_hooks.clock.timing import Time
from trainer_hooks.errors import OptionError, TrainerHooksAdvice

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext


class ValidationSchedule:
    """The points of a fit at which validation is due.

    Args:
        context: the run context.
        num_batches: training batches in an epoch.

    Attributes:
        is_on: whether there is anything to validate.
        every: batches between two checks, or infinity for the end of the epoch alone.
        is_inside: whether a validation may be due inside an epoch.
        depends_on_rank: whether ranks may differ, as each measures time or calls a function.

    Raises:
        OptionError: `val_check_interval` does not fit the number of batches.
    """

    def __init__(self, context: RunContext, num_batches: int | float) -> None:
        self._context = context
        self.is_on = bool(context.data.evaluation["validate"])
        interval = context.plan.val_check_interval
        self._time = interval if isinstance(interval, Time) else None
        self.depends_on_rank = isinstance(interval, Time | DueCondition)
        self._condition: ResumableSchedule | None = None
        self._is_advised = False
        if isinstance(interval, DueCondition):
            self._condition = ResumableSchedule("", interval, context)
        self.every = self._batches_between(num_batches) if self.is_on else math.inf
        self.is_inside = self.every < math.inf or (self.is_on and self._condition is not None)

    def start(self) -> None:
        """Start counting intervals, or continue from the state of a checkpoint."""
        if self._condition is not None:
            self._condition.start()

    def mark_done(self) -> None:
        """Record that the validation that was due is done."""
        if self._condition is not None:
            self._condition.mark_done()

    def due_on_batch(self) -> bool:
        """Return whether validation is due after the batch that just ended, inside the epoch.

        A requested validation is due, unless the epoch's own validation comes next.
        """
        progress = self._context.training.progress
        meets_condition = self._condition is not None and self._condition.is_due()
        if meets_condition or (
            progress.is_validation_requested and not self._context.batch.is_last
        ):
            return True
        if self._time is not None:
            timekeeper = self._context.training.timekeeper
            return self._is_validation_epoch() and timekeeper.is_passed(self._time, progress)
        return self._is_interval_complete()

    def due_after_batches(self, *, is_complete: bool) -> bool:
        """Return whether validation is due at the end of the epoch's batches.

        It is also due after the possibly last batches of the training, so that the final weights
        are validated and callbacks that monitor a metric get its value; and if it was requested.
        Weights that were validated already are not validated again.

        Args:
            is_complete: whether all batches of the epoch are done, so that nothing ended it early.
        """
        progress = self._context.training.progress
        meets_condition = self._condition is not None and self._condition.is_due()
        if progress.validated_at == progress.batches_completed:
            # otherwise a resume would find it due once more
            self.mark_done()
            return False
        # with the batch after which `trainer.end_epoch()` ends the epoch, this was not asked yet
        is_missed = progress.batches_in_epoch > 0 and self._is_interval_complete()
        if progress.is_validation_requested or meets_condition or is_missed:
            return True
        is_at_end = not self.is_inside or not is_complete or self._context.should_stop
        if self.is_on and not is_at_end:
            self._advise_on_short_epoch()
        return self.is_on and is_at_end and self._is_validation_epoch()

    def _advise_on_short_epoch(self) -> None:
        """Advise once of an epoch of a stream that is shorter than the interval inside epochs."""
        progress, plan = self._context.training.progress, self._context.plan
        batches = progress.batches_in_epoch
        is_short = self._time is None and 0 < batches < self.every < math.inf
        is_counted_anew = plan.check_val_every_n_epoch is not None and self._is_validation_epoch()
        if self._is_advised or not is_short or not is_counted_anew:
            return
        self._is_advised = True
        warn(
            f"epoch {progress.epochs_completed} had {count_with_noun(batches, 'batch')}, and "
            f"val_check_interval={self.every} is counted anew in each epoch: it was not validated. "
            "Give a smaller number, or count over epochs with check_val_every_n_epoch=None.",
            TrainerHooksAdvice,
        )

    def _is_interval_complete(self) -> bool:
        """Return whether the batch that just ended completes an interval of batches."""
        progress = self._context.training.progress
        if self.every == math.inf or self._time is not None:
            return False
        if self._context.plan.check_val_every_n_epoch is None:
            return progress.batches_completed % self.every == 0
        return progress.batches_in_epoch % self.every == 0 and self._is_validation_epoch()

    def _is_validation_epoch(self) -> bool:
        """Return whether `check_val_every_n_epoch` includes the current epoch."""
        every_n = self._context.plan.check_val_every_n_epoch
        return (
            every_n is None or (self._context.training.progress.epochs_completed + 1) % every_n == 0
        )

    def _batches_between(self, num_batches: int | float) -> int | float:
        """Return `val_check_interval` as a number of batches."""
        plan = self._context.plan
        interval = plan.val_check_interval
        if isinstance(interval, Time):
            return 1
        if isinstance(interval, DueCondition):
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


class ResumableSchedule:
    """A condition for an evaluation to be due, with its state in the checkpoint.

    An evaluation that was due and did not finish, as when a signal interrupts it, is due again
    after a resume.

    Args:
        label: key of the state.
        when: the condition.
        context: the run context.
    """

    def __init__(self, label: str, when: DueCondition, context: RunContext) -> None:
        self._label, self._condition, self._context = label, DueTracker(when), context

    def start(self) -> None:
        """Start counting, or continue from the state of a checkpoint."""
        if "asked" in self._state:
            self._condition.load_state_dict(self._state["asked"])
        self._condition.start(self._context.trainer.clock)

    def is_due(self) -> bool:
        """Return whether the evaluation is due, and continue counting from here."""
        # if the evaluation is due, the state before this call is stored until the evaluation is
        # done: a resume in between must find it due again
        before = self._condition.state_dict()
        is_due = self._condition.is_due(self._context.trainer.clock)
        self._store(before if is_due else self._condition.state_dict(), self.done_at)
        return is_due

    def mark_done(self) -> None:
        """Record that the evaluation is done."""
        self._store(self._condition.state_dict(), self._context.training.progress.batches_completed)

    @property
    def done_at(self) -> int:
        """Number of completed batches at the last evaluation, or -1."""
        at: int = self._state.get("at", -1)
        return at

    @property
    def _state(self) -> dict[str, Any]:
        """State of this schedule in the checkpoint; empty before the first call of `is_due`."""
        state: dict[str, Any] = self._context.validation.evaluators.get(self._label, {})
        return state

    def _store(self, asked: dict[str, int], at: int) -> None:
        """Store the state for the next checkpoint."""
        self._context.validation.evaluators[self._label] = {"asked": asked, "at": at}
