"""`LearningRateMonitor`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import LearningRateMonitor

__all__ = ["LearningRateMonitor"]
