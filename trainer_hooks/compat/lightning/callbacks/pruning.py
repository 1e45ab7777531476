"""`ModelPruning`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import ModelPruning

__all__ = ["ModelPruning"]
