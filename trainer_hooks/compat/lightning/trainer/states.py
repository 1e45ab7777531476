"""What a trainer is at, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.context import RunningStage, TrainerFn, TrainerStatus
from trainer_hooks.context import RunState as TrainerState

__all__ = ["RunningStage", "TrainerFn", "TrainerState", "TrainerStatus"]
