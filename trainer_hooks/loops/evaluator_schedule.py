"""Decide when evaluators with their own `eval_interval` are due inside fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.loops.validation_schedule import ResumableSchedule

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.loops.validation_schedule import ValidationSchedule


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
        return self._due(self._default_schedule.due_on_batch(), is_last=False)

    def due_after_batches(self, *, is_complete: bool) -> list[int]:
        """Return the indices of the loaders due at the end of the epoch's batches.

        Args:
            is_complete: whether all batches of the epoch are done, so that nothing ended it early.
        """
        plan, progress = self._context.plan, self._context.training.progress
        is_due = self._default_schedule.due_after_batches(is_complete=is_complete)
        is_last_epoch = (
            self._context.should_stop or 0 <= plan.max_epochs <= progress.epochs_completed + 1
        )
        return self._due(is_due, is_last=not is_complete or is_last_epoch)

    def includes_default_loaders(self, chosen: list[int]) -> bool:
        """Return whether `chosen` includes all loaders that follow the trainer's options."""
        return set(self._default_indices) <= set(chosen)

    def mark_done(self, chosen: list[int]) -> None:
        """Record which loaders were evaluated at this batch."""
        for index in chosen:
            if index in self._schedules:
                self._schedules[index].mark_done()

    def _due(self, is_due: bool, *, is_last: bool) -> list[int]:
        """Return the indices of the loaders to run now.

        A requested validation runs all loaders.

        Args:
            is_due: whether the trainer's options make a validation due.
            is_last: whether the training ends here, which makes all with an interval due.
        """
        progress = self._context.training.progress
        batches, is_requested = progress.batches_completed, progress.is_validation_requested
        if is_due and not is_requested and not self._default_indices:
            # no loader follows the options, so that no validation would tell them it was done
            self._default_schedule.mark_done()
        due = [index for index, schedule in self._schedules.items() if schedule.is_due() or is_last]
        done = [index for index in due if self._schedules[index].done_at == batches]
        # otherwise a resume would find them due once more
        self.mark_done(done)
        default_due = self._all_indices if is_requested else self._default_indices
        return sorted({*set(due).difference(done), *(default_due if is_due else ())})
