"""A filter that says when something is evaluated, as a checkpoint keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import Cue

if TYPE_CHECKING:
    from trainer_hooks.clock import Filter
    from trainer_hooks.context import RunContext

__all__ = ["StoredCue"]


class StoredCue:
    """A filter that says when something is evaluated, and what a checkpoint keeps of it.

    What was due but is not done yet, as in a validation that is broken off, is due again after a
    resume.

    Args:
        label: under which it is kept.
        when: the filter.
        context: the run.
    """

    def __init__(self, label: str, when: Filter, context: RunContext) -> None:
        self._label, self._cue, self._context = label, Cue(when), context

    def start(self) -> None:
        """Begin to ask, or go on where the checkpoint was saved."""
        if "asked" in self._state:
            self._cue.load_state_dict(self._state["asked"])
        self._cue.start(self._context.trainer.clock)

    def is_due(self) -> bool:
        """Return whether it is due, and count on from here."""
        before = self._cue.state_dict()
        is_due = self._cue.is_due(self._context.trainer.clock)
        self._keep(before if is_due else self._cue.state_dict(), self.done_at)
        return is_due

    def note(self) -> None:
        """Note that it is done."""
        self._keep(self._cue.state_dict(), self._context.training.progress.batches_completed)

    @property
    def done_at(self) -> int:
        """After how many batches it was done last, or -1."""
        at: int = self._state.get("at", -1)
        return at

    @property
    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._context.validation.evaluators.get(self._label, {})
        return state

    def _keep(self, asked: dict[str, int], at: int) -> None:
        self._context.validation.evaluators[self._label] = {"asked": asked, "at": at}
