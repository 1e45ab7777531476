"""`RichModelSummary`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import RichModelSummary

__all__ = ["RichModelSummary"]
