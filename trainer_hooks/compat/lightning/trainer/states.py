"""What a trainer is at, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.trainer.states import RunningStage, TrainerFn, TrainerState, TrainerStatus

__all__ = ["RunningStage", "TrainerFn", "TrainerState", "TrainerStatus"]
