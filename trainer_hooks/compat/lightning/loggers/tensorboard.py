"""`TensorBoardLogger`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.loggers import TensorBoardLogger

__all__ = ["TensorBoardLogger"]
