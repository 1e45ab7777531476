"""Types of arguments that are optimizers and schedulers, for the modules of a `LightningCLI`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.optim import Optimizer, lr_scheduler

__all__ = [
    "LRSchedulerCallable",
    "LRSchedulerType",
    "LRSchedulerTypeTuple",
    "LRSchedulerTypeUnion",
    "OptimizerCallable",
    "ReduceLROnPlateau",
]


class ReduceLROnPlateau(lr_scheduler.ReduceLROnPlateau):
    """torch's scheduler with the name of the metric that it monitors, for command lines.

    Args:
        optimizer: the optimizer.
        monitor: the logged metric.
        args: further arguments of torch's scheduler.
        kwargs: further arguments of torch's scheduler, by name.
    """

    def __init__(self, optimizer: Optimizer, monitor: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, *args, **kwargs)
        self.monitor = monitor


LRSchedulerTypeTuple = (lr_scheduler.LRScheduler, ReduceLROnPlateau)
LRSchedulerTypeUnion = lr_scheduler.LRScheduler | ReduceLROnPlateau
LRSchedulerType = type[lr_scheduler.LRScheduler] | type[ReduceLROnPlateau]

OptimizerCallable = Callable[[Iterable], Optimizer]  # type: ignore[type-arg]
"""An argument of a module that is an optimizer class with its options, called with parameters."""

LRSchedulerCallable = Callable[[Optimizer], lr_scheduler.LRScheduler | ReduceLROnPlateau]
"""An argument of a module that is a scheduler class with its options, called with an optimizer."""
