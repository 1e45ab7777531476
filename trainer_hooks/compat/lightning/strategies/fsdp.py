"""`FSDPStrategy`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks import FSDPStrategy

__all__ = ["FSDPStrategy"]
