"""Lightning's data module."""

from __future__ import annotations

from trainer_hooks import DataModule

__all__ = ["LightningDataModule"]


class LightningDataModule(DataModule):
    """A `trainer_hooks.DataModule`, which has Lightning's hooks and arguments."""
