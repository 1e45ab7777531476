"""Decide when evaluators with their own `eval_interval` are due inside fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.loops.validation_schedule import ResumableSchedule

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.loops.validation_schedule import ValidationSchedule

__all__ = ["EvaluatorSchedule"]


class EvaluatorSchedule:
    """The points of a fit at which each evaluator is due.

    Evaluators without an interval follow the trainer's options.

    Args:
        context: the run context.
        default_schedule: when the evaluators without an interval are due.
    """

    def __init__(self, context: RunContext, default_schedule: ValidationSchedule) -> None:
        self._context = context
        self._default_schedule = default_schedule
        data = context.data.evaluation["validate"]
        self._all_indices = list(range(len(data.loaders)))
        self._schedules = {
            index: ResumableSchedule(evaluator.label, evaluator.when, context)
            for index, evaluator in enumerate(data.evaluators)
            if evaluator.when is not None
        }
        self._default_indices = [
            index for index in self._all_indices if index not in self._schedules
        ]

    def start(self) -> None:
        """Start counting intervals, or continue from the state of a checkpoint."""
        for schedule in self._schedules.values():
            schedule.start()

    def due_on_batch(self) -> list[int]:
        """Return the indices of the loaders due after the current batch, inside the epoch."""
        is_requested = self._context.training.progress.is_validation_requested
        default_indices = self._default_due(
            self._default_schedule.due_on_batch(), is_requested=is_requested
        )
        return sorted({*default_indices, *self._due_by_own_interval(is_last=False)})

    def due_after_batches(self, *, is_complete: bool) -> list[int]:
        """Return the indices of the loaders due at the end of the epoch's batches.

        Args:
            is_complete: whether all batches of the epoch are done, so that nothing ended it early.
        """
        is_requested = self._context.training.progress.is_validation_requested
        is_due = self._default_schedule.due_after_batches(is_complete=is_complete)
        default_indices = self._default_due(is_due, is_requested=is_requested)
        is_last = not is_complete or self._is_last_epoch()
        return sorted({*default_indices, *self._due_by_own_interval(is_last=is_last)})

    def includes_default_loaders(self, chosen: list[int]) -> bool:
        """Return whether `chosen` includes all loaders that follow the trainer's options."""
        return set(self._default_indices) <= set(chosen)

    def mark_done(self, chosen: list[int]) -> None:
        """Record which loaders were evaluated at this batch."""
        for index in chosen:
            if index in self._schedules:
                self._schedules[index].mark_done()

    def _default_due(self, is_due: bool, *, is_requested: bool) -> list[int]:
        """Return the indices to run in a validation that the trainer's options make due.

        A requested validation runs all loaders. If no loader follows the options, there is nothing
        to do.
        """
        if is_due and not is_requested and not self._default_indices:
            self._default_schedule.mark_done()
        return [] if not is_due else self._all_indices if is_requested else self._default_indices

    def _due_by_own_interval(self, *, is_last: bool) -> list[int]:
        """Return the indices whose interval has passed; at the end of training, all with one."""
        batches = self._context.training.progress.batches_completed
        due = [index for index, schedule in self._schedules.items() if schedule.is_due() or is_last]
        done = [index for index in due if self._schedules[index].done_at == batches]
        # Otherwise a resume would find them due once more.
        self.mark_done(done)
        return [index for index in due if index not in done]

    def _is_last_epoch(self) -> bool:
        """Return whether the training ends with the current epoch."""
        plan, progress = self._context.plan, self._context.training.progress
        return self._context.should_stop or 0 <= plan.max_epochs <= progress.epochs_completed + 1
