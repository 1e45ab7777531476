"""Progress bars, where Lightning has them."""

from __future__ import annotations

from trainer_hooks.callbacks import ProgressBar, RichProgressBar, TQDMProgressBar

__all__ = ["ProgressBar", "RichProgressBar", "TQDMProgressBar"]
