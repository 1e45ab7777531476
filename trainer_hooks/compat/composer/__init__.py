"""Composer's names over trainer_hooks; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._version import __version__
from trainer_hooks.compat.composer.modules import MODULES, package_getattr

if TYPE_CHECKING:
    from trainer_hooks.compat.composer import (
        callbacks,
        core,
        loggers,
        metrics,
        models,
        optim,
        trainer,
        utils,
    )
    from trainer_hooks.compat.composer.core.callback import Callback
    from trainer_hooks.compat.composer.core.data_spec import DataSpec
    from trainer_hooks.compat.composer.core.engine import Engine
    from trainer_hooks.compat.composer.core.evaluator import Evaluator
    from trainer_hooks.compat.composer.core.event import Event
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.core.time import Time, Timestamp, TimeUnit
    from trainer_hooks.compat.composer.loggers.logger import Logger
    from trainer_hooks.compat.composer.models.base import ComposerModel
    from trainer_hooks.compat.composer.trainer import Trainer

__all__ = [
    "Callback",
    "ComposerModel",
    "DataSpec",
    "Engine",
    "Evaluator",
    "Event",
    "Logger",
    "State",
    "Time",
    "TimeUnit",
    "Timestamp",
    "Trainer",
    "__version__",
    "callbacks",
    "core",
    "loggers",
    "metrics",
    "models",
    "optim",
    "trainer",
    "utils",
]

MODULES.register()

__getattr__ = package_getattr(
    __name__,
    {
        "Callback": "core.callback",
        "ComposerModel": "models.base",
        "DataSpec": "core.data_spec",
        "Engine": "core.engine",
        "Evaluator": "core.evaluator",
        "Event": "core.event",
        "Logger": "loggers.logger",
        "State": "core.state",
        "Time TimeUnit Timestamp": "core.time",
        "Trainer": "trainer",
        "callbacks core loggers metrics models optim trainer utils": "",
    },
)


def __dir__() -> list[str]:
    return __all__
