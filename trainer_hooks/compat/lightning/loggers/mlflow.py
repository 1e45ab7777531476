"""`MLFlowLogger`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.loggers import MLFlowLogger

__all__ = ["MLFlowLogger"]
