"""`ModelCheckpoint`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import ModelCheckpoint

__all__ = ["ModelCheckpoint"]
