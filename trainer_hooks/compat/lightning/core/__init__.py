"""LightningModule and LightningDataModule, at Lightning's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import lightning_getattr

if TYPE_CHECKING:
    from trainer_hooks.compat.lightning.base_classes import (
        LightningDataModule,
        LightningModule,
    )

__all__ = [
    "LightningDataModule",
    "LightningModule",
]

__getattr__ = lightning_getattr(
    __name__, dict.fromkeys(__all__, ":trainer_hooks.compat.lightning.base_classes")
)


def __dir__() -> list[str]:
    return __all__
