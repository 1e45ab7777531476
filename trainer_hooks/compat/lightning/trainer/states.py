"""What a trainer is at, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.context import RunningStage, TrainerFn, TrainerStatus

__all__ = ["RunningStage", "TrainerFn", "TrainerStatus"]
