"""When evaluators with an interval of their own are due inside fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.loops.stored_cue import StoredCue

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.validation_schedule import ValidationSchedule

__all__ = ["EvaluatorSchedule"]


class EvaluatorSchedule:
    """Which evaluators are due; those without an interval go by the trainer's.

    Args:
        context: the run.
        common: when the others are due.
    """

    def __init__(self, context: RunContext, common: ValidationSchedule) -> None:
        self._context = context
        self._common = common
        data = context.data.evaluation["validate"]
        self._all = list(range(len(data.loaders)))
        self._cues = {
            index: StoredCue(evaluator.label, evaluator.when, context)
            for index, evaluator in enumerate(data.evaluators)
            if evaluator.when is not None
        }
        self._with_common = [index for index in self._all if index not in self._cues]

    def start(self) -> None:
        """Begin to ask, or go on where the checkpoint was saved."""
        for cue in self._cues.values():
            cue.start()

    def due_on_batch(self) -> list[int]:
        """Return the loaders that are due after the batch just done, inside the epoch."""
        if self._context.training.progress.is_validation_requested:
            return self._all if self._common.is_due_on_batch() else self._own(is_last=False)
        common = self._with_common if self._common.is_due_on_batch() else []
        return sorted([*common, *self._own(is_last=False)])

    def due_after_batches(self, *, is_complete: bool) -> list[int]:
        """Return those that are due at the end of the epoch's batches.

        Args:
            is_complete: whether all batches of the epoch were done; else something ended it.
        """
        is_asked = self._context.training.progress.is_validation_requested
        common: list[int] = []
        if self._common.is_due_after_batches(is_complete=is_complete):
            common = self._all if is_asked else self._with_common
        is_last = not is_complete or self._is_last_epoch()
        return sorted({*common, *self._own(is_last=is_last)})

    def are_common_in(self, chosen: list[int]) -> bool:
        """Return whether all that go by the trainer's options are among those chosen."""
        return set(self._with_common) <= set(chosen)

    def note(self, chosen: list[int]) -> None:
        """Note which were evaluated at this batch."""
        for index in chosen:
            if index in self._cues:
                self._cues[index].note()

    def _own(self, *, is_last: bool) -> list[int]:
        """Return those whose own interval has passed, or that the training ends without."""
        batches = self._context.training.progress.batches_completed
        due = [index for index, cue in self._cues.items() if cue.is_due() or is_last]
        done = [index for index in due if self._cues[index].done_at == batches]
        self.note(done)  # so that a resume does not find them due once more
        return [index for index in due if index not in done]

    def _is_last_epoch(self) -> bool:
        plan, progress = self._context.plan, self._context.training.progress
        return self._context.has_to_stop or 0 <= plan.max_epochs <= progress.epochs_completed + 1
