"""Loggers, where Lightning has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of
from trainer_hooks.compat.refusing import refusing

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

__getattr__ = refusing(
    __name__,
    {"LitLogger": "its service is not offered here: take another logger"},
    loader_of(
        __name__,
        {
            "CSVLogger": ":trainer_hooks.loggers",
            "CometLogger": ":trainer_hooks.loggers",
            "Logger": ":trainer_hooks.loggers",
            "MLFlowLogger": ":trainer_hooks.loggers",
            "NeptuneLogger": ":trainer_hooks.loggers",
            "TensorBoardLogger": ":trainer_hooks.loggers",
            "WandbLogger": ":trainer_hooks.loggers",
        },
    ),
)


def __dir__() -> list[str]:
    return __all__
