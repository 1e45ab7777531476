"""`ProgressBar`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import ProgressBar

__all__ = ["ProgressBar"]
