"""`LightningDataModule`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.compat.lightning.datamodule import LightningDataModule

__all__ = ["LightningDataModule"]
