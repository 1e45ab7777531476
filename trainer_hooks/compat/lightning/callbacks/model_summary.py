"""`ModelSummary`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import ModelSummary

__all__ = ["ModelSummary"]
