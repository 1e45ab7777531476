"""`OnExceptionCheckpoint`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import OnExceptionCheckpoint

__all__ = ["OnExceptionCheckpoint"]
