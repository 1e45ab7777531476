"""`BatchSizeFinder`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import BatchSizeFinder

__all__ = ["BatchSizeFinder"]
