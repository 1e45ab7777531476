"""`Checkpoint`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import Checkpoint

__all__ = ["Checkpoint"]
