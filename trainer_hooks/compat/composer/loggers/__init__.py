"""Composer's logger destinations; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.composer._names import names
from trainer_hooks.compat.composer.absent import LOGGERS

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.loggers.console import ConsoleLogger
    from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
    from trainer_hooks.compat.composer.loggers.elsewhere import CometMLLogger, NeptuneLogger
    from trainer_hooks.compat.composer.loggers.file import FileLogger
    from trainer_hooks.compat.composer.loggers.hosted import (
        MLFlowLogger,
        TensorboardLogger,
        WandBLogger,
    )
    from trainer_hooks.compat.composer.loggers.in_memory import InMemoryLogger
    from trainer_hooks.compat.composer.loggers.logger import Logger
    from trainer_hooks.compat.composer.loggers.texts import format_log_data_value

__all__ = [
    "CometMLLogger",
    "ConsoleLogger",
    "FileLogger",
    "InMemoryLogger",
    "Logger",
    "LoggerDestination",
    "MLFlowLogger",
    "NeptuneLogger",
    "TensorboardLogger",
    "WandBLogger",
    "format_log_data_value",
]

__getattr__ = names(
    __name__,
    {
        "CometMLLogger": "elsewhere",
        "ConsoleLogger": "console",
        "FileLogger": "file",
        "InMemoryLogger": "in_memory",
        "Logger": "logger",
        "LoggerDestination": "destination",
        "MLFlowLogger": "hosted",
        "NeptuneLogger": "elsewhere",
        "TensorboardLogger": "hosted",
        "WandBLogger": "hosted",
        "format_log_data_value": "texts",
    },
    tuple(LOGGERS),
)


def __dir__() -> list[str]:
    return __all__
