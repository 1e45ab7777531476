"""`WandbLogger`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.loggers import WandbLogger

__all__ = ["WandbLogger"]
