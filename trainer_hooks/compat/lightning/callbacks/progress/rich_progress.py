"""`RichProgressBar`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import RichProgressBar, RichProgressBarTheme

__all__ = ["RichProgressBar", "RichProgressBarTheme"]
