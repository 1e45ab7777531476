"""The states of a trainer, importable from where Lightning has them."""

from __future__ import annotations

from trainer_hooks.context.run_state import RunningStage, TrainerFn, TrainerStatus
from trainer_hooks.context.run_state import RunState as TrainerState

__all__ = ["RunningStage", "TrainerFn", "TrainerState", "TrainerStatus"]
