"""What a user subclasses: the Module, what it logs and steps, its optimizers and schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.module.compiled import outside_of_graphs, uncompiled
    from trainer_hooks.module.module import Module
    from trainer_hooks.module.optimization import (
        LRSchedulerConfig,
        ManualOptimizer,
        Optimization,
        needs_closure,
        parse,
    )

__all__ = [
    "LRSchedulerConfig",
    "ManualOptimizer",
    "Module",
    "Optimization",
    "needs_closure",
    "outside_of_graphs",
    "parse",
    "uncompiled",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "LRSchedulerConfig": "optimization",
            "ManualOptimizer": "optimization",
            "Module": "module",
            "Optimization": "optimization",
            "needs_closure": "optimization",
            "outside_of_graphs": "compiled",
            "parse": "optimization",
            "uncompiled": "compiled",
        },
    )
