"""`Timer`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import Timer

__all__ = ["Timer"]
