"""`CometLogger`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.loggers import CometLogger

__all__ = ["CometLogger"]
