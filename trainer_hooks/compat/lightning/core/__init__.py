"""Modules and data modules, where Lightning has them."""

from __future__ import annotations

from trainer_hooks.compat.lightning.datamodule import LightningDataModule
from trainer_hooks.compat.lightning.module import LightningModule

__all__ = ["LightningDataModule", "LightningModule"]
