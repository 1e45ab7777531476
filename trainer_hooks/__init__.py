"""trainer_hooks: a PyTorch trainer whose one idea is the hook.

Importing it imports neither torch nor any callback: each name is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of
from trainer_hooks._version import __version__, old_torch

if TYPE_CHECKING:
    from trainer_hooks import callbacks as callbacks
    from trainer_hooks import loggers as loggers
    from trainer_hooks import profilers as profilers
    from trainer_hooks import utilities as utilities
    from trainer_hooks.callback import Callback
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI
    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.clock.schedules import after, every, once
    from trainer_hooks.clock.timing import Time, TimeUnit
    from trainer_hooks.data.evaluator import Evaluator
    from trainer_hooks.data.loaders import CombinedLoader
    from trainer_hooks.errors import (
        StopTraining,
        StopTrainingError,
        TrainerHooksError,
        TrainerHooksWarning,
    )
    from trainer_hooks.hooks.band import Band
    from trainer_hooks.hooks.catalogue import Hooks
    from trainer_hooks.hooks.event import Event
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module
    from trainer_hooks.runtime.rank_zero import (
        rank_zero_deprecation,
        rank_zero_info,
        rank_zero_only,
        rank_zero_warn,
    )
    from trainer_hooks.runtime.rng import seed_everything
    from trainer_hooks.runtime.strategy_options import DDPStrategy, FSDPStrategy
    from trainer_hooks.trainer.own_loop import Run
    from trainer_hooks.trainer.trainer import Trainer
    from trainer_hooks.trainer.tuner import Tuner

__all__ = [
    "Band",
    "Callback",
    "Clock",
    "CombinedLoader",
    "DDPStrategy",
    "DataModule",
    "Evaluator",
    "Event",
    "FSDPStrategy",
    "Hooks",
    "Module",
    "Run",
    "StopTraining",
    "StopTrainingError",
    "Time",
    "TimeUnit",
    "Trainer",
    "TrainerCLI",
    "TrainerHooksError",
    "TrainerHooksWarning",
    "Tuner",
    "__version__",
    "after",
    "callbacks",
    "every",
    "loggers",
    "once",
    "profilers",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "seed_everything",
    "utilities",
]

__getattr__ = loader_of(
    __name__,
    {
        "Band": "hooks.band",
        "Callback": "callback",
        "Clock": "clock.clock",
        "CombinedLoader": "data.loaders",
        "DDPStrategy": "runtime.strategy_options",
        "FSDPStrategy": "runtime.strategy_options",
        "DataModule": "module.datamodule",
        "Evaluator": "data.evaluator",
        "Event": "hooks.event",
        "Hooks": "hooks.catalogue",
        "Module": "module.module",
        "Run": "trainer.own_loop",
        "StopTraining": "errors",
        "StopTrainingError": "errors",
        "Time": "clock.timing",
        "TimeUnit": "clock.timing",
        "Trainer": "trainer.trainer",
        "TrainerCLI": "cli.run.trainer_cli",
        "TrainerHooksError": "errors",
        "TrainerHooksWarning": "errors",
        "Tuner": "trainer.tuner",
        "after": "clock.schedules",
        "callbacks": "",
        "every": "clock.schedules",
        "loggers": "",
        "once": "clock.schedules",
        "rank_zero_deprecation": "runtime.rank_zero",
        "rank_zero_info": "runtime.rank_zero",
        "rank_zero_only": "runtime.rank_zero",
        "rank_zero_warn": "runtime.rank_zero",
        "seed_everything": "runtime.rng",
        "profilers": "",
        "utilities": "",
    },
)


def __dir__() -> list[str]:
    return __all__


if _line := old_torch():
    # No error yet, which each name is: pytest and Lightning import the package where it is only
    # installed, and `trainer-hooks doctor` says what else is wrong.
    import warnings

    from trainer_hooks.errors import TrainerHooksWarning as _Warning

    warnings.warn(_line, _Warning, stacklevel=2)
