"""`GradientAccumulationScheduler`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import GradientAccumulationScheduler

__all__ = ["GradientAccumulationScheduler"]
