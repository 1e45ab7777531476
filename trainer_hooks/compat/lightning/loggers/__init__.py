"""The loggers, at Lightning's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import lightning_getattr

if TYPE_CHECKING:
    from trainer_hooks.loggers import (
        CometLogger,
        CSVLogger,
        Logger,
        MLFlowLogger,
        NeptuneLogger,
        TensorBoardLogger,
        WandbLogger,
    )

__all__ = [
    "CSVLogger",
    "CometLogger",
    "Logger",
    "MLFlowLogger",
    "NeptuneLogger",
    "TensorBoardLogger",
    "WandbLogger",
]

__getattr__ = lightning_getattr(__name__, dict.fromkeys(__all__, ":trainer_hooks.loggers"))


def __dir__() -> list[str]:
    return __all__
