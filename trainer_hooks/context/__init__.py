"""What one run consists of: the parts that the loops work on, in one RunContext."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.context.asked import Asked
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.context.context import Trainer as Trainer  # for annotations alone
    from trainer_hooks.context.data import EvalData, RunData
    from trainer_hooks.context.moving import LEAVE, REFUSE, MovingParts, Part
    from trainer_hooks.context.plan import IN_OTHER_LIMITS, NEVER, Plan
    from trainer_hooks.context.state import (
        RunningStage,
        RunState,
        TrainerFn,
        TrainerStatus,
        present_step,
    )
    from trainer_hooks.context.training import Training
    from trainer_hooks.context.work import OverriddenSteps

__all__ = [
    "IN_OTHER_LIMITS",
    "LEAVE",
    "NEVER",
    "REFUSE",
    "Asked",
    "EvalData",
    "MovingParts",
    "OverriddenSteps",
    "Part",
    "Plan",
    "RunContext",
    "RunData",
    "RunState",
    "RunningStage",
    "TrainerFn",
    "TrainerStatus",
    "Training",
    "present_step",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "Asked": "asked",
            "EvalData": "data",
            "IN_OTHER_LIMITS": "plan",
            "LEAVE": "moving",
            "MovingParts": "moving",
            "NEVER": "plan",
            "OverriddenSteps": "work",
            "Part": "moving",
            "Plan": "plan",
            "REFUSE": "moving",
            "RunContext": "context",
            "RunData": "data",
            "RunState": "state",
            "RunningStage": "state",
            "TrainerFn": "state",
            "TrainerStatus": "state",
            "Training": "training",
            "present_step": "state",
        },
    )
