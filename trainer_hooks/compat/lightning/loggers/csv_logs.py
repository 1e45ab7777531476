"""`CSVLogger`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.loggers import CSVLogger

__all__ = ["CSVLogger"]
