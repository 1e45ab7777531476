"""`NeptuneLogger`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.loggers import NeptuneLogger

__all__ = ["NeptuneLogger"]
