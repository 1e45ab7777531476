"""Types of arguments that are optimizers and schedulers, for the modules of a `LightningCLI`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch.optim import Optimizer, lr_scheduler

from trainer_hooks.cli.run.optimizers import ReduceLROnPlateau

__all__ = [
    "LRSchedulerCallable",
    "LRSchedulerType",
    "LRSchedulerTypeTuple",
    "LRSchedulerTypeUnion",
    "OptimizerCallable",
    "ReduceLROnPlateau",
]

LRSchedulerTypeTuple = (lr_scheduler.LRScheduler, ReduceLROnPlateau)
LRSchedulerTypeUnion = lr_scheduler.LRScheduler | ReduceLROnPlateau
LRSchedulerType = type[lr_scheduler.LRScheduler] | type[ReduceLROnPlateau]

OptimizerCallable = Callable[[Iterable], Optimizer]  # type: ignore[type-arg]
"""An argument of a module that is an optimizer class with its options, called with parameters."""

LRSchedulerCallable = Callable[[Optimizer], lr_scheduler.LRScheduler | ReduceLROnPlateau]
"""An argument of a module that is a scheduler class with its options, called with an optimizer."""
