"""StopTraining, by both its names, where callbacks that raise it look for it."""

from __future__ import annotations

from trainer_hooks.errors import StopTraining, StopTrainingError

__all__ = ["StopTraining", "StopTrainingError"]
