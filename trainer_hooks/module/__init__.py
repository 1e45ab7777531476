"""What a user subclasses: Module and DataModule, with logging, optimizers and schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.module.compiled import outside_of_graphs, uncompiled
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module
    from trainer_hooks.module.optimization import (
        LRSchedulerConfig,
        ManualOptimizer,
        Optimization,
        needs_closure,
        parse,
        takes_closure,
    )
    from trainer_hooks.module.scripting import without_run
    from trainer_hooks.module.setup import (
        changed_options,
        require_same_classes,
        setup_of,
        take_options,
        warn_of_foreign,
    )
    from trainer_hooks.module.sharded import own_class

__all__ = [
    "DataModule",
    "LRSchedulerConfig",
    "ManualOptimizer",
    "Module",
    "Optimization",
    "changed_options",
    "needs_closure",
    "outside_of_graphs",
    "own_class",
    "parse",
    "require_same_classes",
    "setup_of",
    "take_options",
    "takes_closure",
    "uncompiled",
    "warn_of_foreign",
    "without_run",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "DataModule": "datamodule",
            "LRSchedulerConfig": "optimization",
            "ManualOptimizer": "optimization",
            "Module": "module",
            "Optimization": "optimization",
            "changed_options": "setup",
            "needs_closure": "optimization",
            "outside_of_graphs": "compiled",
            "own_class": "sharded",
            "parse": "optimization",
            "require_same_classes": "setup",
            "setup_of": "setup",
            "take_options": "setup",
            "takes_closure": "optimization",
            "warn_of_foreign": "setup",
            "uncompiled": "compiled",
            "without_run": "scripting",
        },
    )
