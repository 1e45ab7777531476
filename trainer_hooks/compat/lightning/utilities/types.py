"""Types for annotations, at Lightning's path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainer_hooks.module.optimization import LRSchedulerConfig

__all__ = [
    "EVAL_DATALOADERS",
    "STEP_OUTPUT",
    "TRAIN_DATALOADERS",
    "LRSchedulerConfig",
    "LRSchedulerConfigType",
    "LRSchedulerPLType",
    "LRSchedulerTypeTuple",
    "LRSchedulerTypeUnion",
    "OptimizerConfig",
    "OptimizerLRScheduler",
    "OptimizerLRSchedulerConfig",
]

STEP_OUTPUT = Tensor | Mapping[str, Any] | None
"""The results that `training_step`, `validation_step` and `test_step` may return."""

TRAIN_DATALOADERS = Any
"""Training data: any iterable of batches, or nested ones."""

EVAL_DATALOADERS = Any
"""Evaluation data: any iterable of batches, or several."""

# for isinstance, and the others for annotations
LRSchedulerTypeTuple = (LRScheduler, ReduceLROnPlateau)
LRSchedulerTypeUnion = LRScheduler | ReduceLROnPlateau
LRSchedulerPLType = LRScheduler | ReduceLROnPlateau


class LRSchedulerConfigType(TypedDict, total=False):
    """A scheduler and when it steps, as `configure_optimizers` may return it."""

    scheduler: LRSchedulerTypeUnion
    name: str | None
    interval: str
    frequency: int
    reduce_on_plateau: bool
    monitor: str | None
    strict: bool


class OptimizerConfig(TypedDict):
    """An optimizer alone, as `configure_optimizers` may return it."""

    optimizer: Optimizer


class OptimizerLRSchedulerConfig(TypedDict):
    """An optimizer and its scheduler, as `configure_optimizers` may return them."""

    optimizer: Optimizer
    lr_scheduler: LRSchedulerTypeUnion | LRSchedulerConfigType
    monitor: str


OptimizerLRScheduler = (
    Optimizer
    | Sequence[Optimizer]
    | tuple[Sequence[Optimizer], Sequence[Any]]
    | OptimizerConfig
    | OptimizerLRSchedulerConfig
    | Sequence[OptimizerConfig]
    | None
)
"""The results that `configure_optimizers` may return."""
