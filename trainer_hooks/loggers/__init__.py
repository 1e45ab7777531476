"""Loggers: write the metrics of a run to files or services; each is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.loggers.comet import CometLogger
    from trainer_hooks.loggers.console import ConsoleLogger
    from trainer_hooks.loggers.csv import CSVLogger
    from trainer_hooks.loggers.dummy import DummyLogger
    from trainer_hooks.loggers.in_memory import InMemoryLogger
    from trainer_hooks.loggers.mlflow import MLFlowLogger, MLflowLogger
    from trainer_hooks.loggers.tensorboard import TensorBoardLogger
    from trainer_hooks.loggers.wandb import WandbLogger

__all__ = [
    "CSVLogger",
    "CometLogger",
    "ConsoleLogger",
    "DummyLogger",
    "InMemoryLogger",
    "Logger",
    "MLFlowLogger",
    "MLflowLogger",
    "TensorBoardLogger",
    "WandbLogger",
]

__getattr__ = loader_of(
    __name__,
    {
        "CSVLogger": "csv",
        "CometLogger": "comet",
        "ConsoleLogger": "console",
        "DummyLogger": "dummy",
        "InMemoryLogger": "in_memory",
        "Logger": "base",
        "MLFlowLogger": "mlflow",
        "MLflowLogger": "mlflow",
        "TensorBoardLogger": "tensorboard",
        "WandbLogger": "wandb",
    },
)


def __dir__() -> list[str]:
    return __all__
