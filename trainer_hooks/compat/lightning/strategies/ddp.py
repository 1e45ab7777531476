"""`DDPStrategy`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks import DDPStrategy

__all__ = ["DDPStrategy"]
