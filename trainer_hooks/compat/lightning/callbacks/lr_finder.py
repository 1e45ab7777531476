"""`LearningRateFinder`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import LearningRateFinder

__all__ = ["LearningRateFinder"]
