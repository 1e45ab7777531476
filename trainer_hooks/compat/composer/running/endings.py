"""Endings: what is due at the end of an epoch and of a fit, in Composer's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.running.figures import log_progress

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.engine import Engine

__all__ = ["Endings"]


class Endings:
    """Fire the events that end an epoch and a fit, and say which evaluations are due.

    trainer_hooks evaluates at the end of a training before the epoch's last slot; Composer does so
    after `FIT_END`. Where that is what is due, these events come before it.

    Args:
        engine: what calls the callbacks.
        is_guest: whether trainer_hooks alone says when to evaluate.

    Attributes:
        is_complete: whether the epoch under way had all its batches.
        wanted: the labels of the evaluators that are due; None for all.
    """

    def __init__(self, engine: Engine, *, is_guest: bool) -> None:
        self._engine = engine
        self._state = engine.state
        self._is_guest = is_guest
        self.is_complete = False
        self.wanted: set[str] | None = None
        self._has_saved = True
        self._is_over = False
        self._is_final = False

    def begin_fit(self) -> None:
        """Forget how the last fit ended."""
        self._is_over, self._has_saved, self.wanted = False, True, set()

    def begin_epoch(self) -> None:
        """Open an epoch."""
        self.is_complete = self._has_saved = False

    @property
    def is_enough(self) -> bool:
        """Whether as much is trained as was asked for."""
        longest = self._state.max_duration
        return longest is not None and self._state.timestamp >= longest

    def choose(self, event: Event | None) -> None:
        """Ask the evaluators which are due at an event, or at the end of the training."""
        if self._is_guest:
            self.wanted = None
            return
        self._is_final = False
        self.wanted = set() if event is None else self._due(event)
        if not self.wanted and event is not Event.BATCH_END and self.is_enough:
            self._is_final = True
            self.wanted = self._due(Event.FIT_END)

    def is_wanted(self, label: str) -> bool:
        """Return whether an evaluator is due."""
        return self.wanted is None or label in self.wanted

    def before_evaluations(self) -> None:
        """Fire what Composer has before the evaluations at the end of a training."""
        if self._is_final:
            self.save_epoch()
            self.end_fit()

    def save_epoch(self) -> None:
        """Fire `EPOCH_CHECKPOINT`, once an epoch, if that is complete."""
        if self.is_complete and not self._has_saved:
            self._has_saved = True
            self._engine.run_event(Event.EPOCH_CHECKPOINT)

    def end_fit(self) -> None:
        """Fire `FIT_END`, once a fit."""
        if self._is_over:
            return
        self._is_over = True
        if not self._is_guest:
            log_progress(self._state, self._engine.logger, with_epoch=True)
        self._engine.run_event(Event.FIT_END)

    def _due(self, event: Event) -> set[str]:
        state = self._state
        asked = [one for one in state.evaluators if not one.is_never_due]
        return {one.label for one in asked if one.eval_interval(state, event)}
