"""Types for annotations, under Lightning's names; `modules` has their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainer_hooks.module.optimization import LRSchedulerConfig

__all__ = [
    "EPOCH_OUTPUT",
    "EVAL_DATALOADERS",
    "STEP_OUTPUT",
    "TRAIN_DATALOADERS",
    "CollectibleGroup",
    "LRSchedulerConfig",
    "LRSchedulerConfigType",
    "LRSchedulerPLType",
    "LRSchedulerType",
    "LRSchedulerTypeTuple",
    "LRSchedulerTypeUnion",
    "Optimizable",
    "OptimizerConfig",
    "OptimizerLRScheduler",
    "OptimizerLRSchedulerConfig",
    "ProcessGroup",
    "ReduceOp",
    "Steppable",
]

STEP_OUTPUT = Tensor | Mapping[str, Any] | None
"""The results that `training_step`, `validation_step` and `test_step` may return."""

TRAIN_DATALOADERS = Any
"""Training data: any iterable of batches, or nested ones."""

EPOCH_OUTPUT = list[Any]
"""The results of an epoch's steps, as Lightning 1.x passed them to hooks."""

EVAL_DATALOADERS = Any
"""Evaluation data: any iterable of batches, or several."""

# for isinstance, and the others for annotations
LRSchedulerTypeTuple = (LRScheduler, ReduceLROnPlateau)
LRSchedulerTypeUnion = LRScheduler | ReduceLROnPlateau
LRSchedulerPLType = LRScheduler | ReduceLROnPlateau
LRSchedulerType = type[LRScheduler] | type[ReduceLROnPlateau]

_NUMBER = int | float
_METRIC = Any  # a tensor, a number or a metric of torchmetrics, which need not be installed
_EVALUATE_OUTPUT = list[Mapping[str, float]]
_PREDICT_OUTPUT = list[Any] | list[list[Any]]
_PATH = str | Path
_DEVICE = torch.device | str | int
_MAP_LOCATION_TYPE = (
    _DEVICE
    | Callable[[torch.UntypedStorage, str], torch.UntypedStorage | None]
    | dict[_DEVICE, _DEVICE]
    | None
)
_PARAMETERS = Iterator[torch.nn.Parameter]

# torch can be built without them
ProcessGroup: Any = getattr(dist, "ProcessGroup", Any)
ReduceOp: Any = getattr(dist, "ReduceOp", object)


@runtime_checkable
class _Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@runtime_checkable
class CollectibleGroup(Protocol):
    """A process group, by its methods."""

    def size(self) -> int:
        """Return the number of processes."""
        ...

    def rank(self) -> int:
        """Return the rank of this process."""
        ...


@runtime_checkable
class Steppable(Protocol):
    """An object that steps, as an optimizer does."""

    def step(self, closure: Callable[[], float] | None = ...) -> float | None:
        """Make a step."""
        ...


@runtime_checkable
class Optimizable(Steppable, Protocol):
    """An optimizer, by its attributes."""

    param_groups: list[dict[Any, Any]]
    defaults: dict[Any, Any]
    state: Any

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        ...


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
