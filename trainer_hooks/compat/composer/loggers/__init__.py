"""Composer's logger destinations; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.loggers.experiment_trackers import (
        CometMLLogger,
        MLFlowLogger,
        TensorboardLogger,
        WandBLogger,
    )
    from trainer_hooks.compat.composer.loggers.logger import Logger, format_log_data_value
    from trainer_hooks.compat.composer.loggers.logger_destination import (
        ConsoleLogger,
        FileLogger,
        InMemoryLogger,
        LoggerDestination,
    )

__all__ = [
    "CometMLLogger",
    "ConsoleLogger",
    "FileLogger",
    "InMemoryLogger",
    "Logger",
    "LoggerDestination",
    "MLFlowLogger",
    "TensorboardLogger",
    "WandBLogger",
    "format_log_data_value",
]

__getattr__ = package_getattr(
    __name__,
    {
        "CometMLLogger MLFlowLogger TensorboardLogger": "experiment_trackers",
        "WandBLogger": "experiment_trackers",
        "ConsoleLogger FileLogger InMemoryLogger LoggerDestination": "logger_destination",
        "Logger format_log_data_value": "logger",
    },
)


def __dir__() -> list[str]:
    return __all__
