"""OnCue: a callback that acts at an interval, and loses none at a resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.clock import Cue

if TYPE_CHECKING:
    from trainer_hooks.clock import Filter
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["OnCue"]


class OnCue(Callback):
    """Keep when it was last asked whether something is due: `self._cue.is_due(trainer.clock)`.

    Args:
        when: the filter that says.

    State: the counts when it was asked last.
    """

    def __init__(self, when: Filter) -> None:
        self._cue = Cue(when)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts when it last looked."""
        return {"asked": self._cue.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        if "asked" in state_dict:
            self._cue.load_state_dict(state_dict["asked"])

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew with a new training."""
        if trainer.progress.is_fresh:
            self._cue.forget()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start counting, or go on."""
        self._cue.start(trainer.clock)
