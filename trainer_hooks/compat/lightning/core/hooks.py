"""Lightning's groups of hooks, which are methods of modules and data modules here."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing

__all__: list[str] = []

__getattr__ = refusing(
    __name__,
    {
        "CheckpointHooks": "derive from LightningModule or LightningDataModule, which have them",
        "DataHooks": "derive from LightningModule or LightningDataModule, which have them",
        "ModelHooks": "derive from LightningModule, which has them",
    },
)
