"""`LightningModule`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.compat.lightning.module import LightningModule

__all__ = ["LightningModule"]
