"""trainer_hooks: a PyTorch trainer whose one idea is the hook.

Importing it imports neither torch nor any callback: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainer_hooks._version import __version__

if TYPE_CHECKING:
    from trainer_hooks import callbacks as callbacks
    from trainer_hooks import loggers as loggers
    from trainer_hooks.callback import Callback
    from trainer_hooks.data.combined import CombinedLoader
    from trainer_hooks.data.module import DataModule
    from trainer_hooks.errors import StopTraining, TrainerHooksError, TrainerHooksWarning
    from trainer_hooks.hooks.catalogue import Hooks
    from trainer_hooks.hooks.order import Band
    from trainer_hooks.module import Module
    from trainer_hooks.runtime.rng import seed_everything
    from trainer_hooks.trainer import Trainer

__all__ = [
    "Band",
    "Callback",
    "CombinedLoader",
    "DataModule",
    "Hooks",
    "Module",
    "StopTraining",
    "Trainer",
    "TrainerHooksError",
    "TrainerHooksWarning",
    "__version__",
    "callbacks",
    "loggers",
    "seed_everything",
]

_HOMES = {
    "Band": "trainer_hooks.hooks.order",
    "Callback": "trainer_hooks.callback",
    "CombinedLoader": "trainer_hooks.data.combined",
    "DataModule": "trainer_hooks.data.module",
    "Hooks": "trainer_hooks.hooks.catalogue",
    "Module": "trainer_hooks.module",
    "StopTraining": "trainer_hooks.errors",
    "Trainer": "trainer_hooks.trainer",
    "TrainerHooksError": "trainer_hooks.errors",
    "TrainerHooksWarning": "trainer_hooks.errors",
    "seed_everything": "trainer_hooks.runtime.rng",
}
_PACKAGES = frozenset({"callbacks", "loggers"})


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"trainer_hooks.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'trainer_hooks' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
