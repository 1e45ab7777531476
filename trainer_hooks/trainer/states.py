"""What `trainer.state` says, at the place where Lightning has it."""

from __future__ import annotations

from trainer_hooks.context import RunningStage, TrainerFn, TrainerStatus
from trainer_hooks.context import RunState as TrainerState

__all__ = ["RunningStage", "TrainerFn", "TrainerState", "TrainerStatus"]
