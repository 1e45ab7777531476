"""Helpers of pytorch-accelerated: limits of batches, decorators for ranks, averaged weights."""

from __future__ import annotations

import itertools
import os
from copy import deepcopy
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn

from trainer_hooks.adapters.pytorch_accelerated.gathering import remove_padding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    from torch import Tensor

__all__ = [
    "LIMIT_BATCHES_ENV_VAR",
    "DataLoaderSlice",
    "LimitBatches",
    "ModelEma",
    "local_process_zero_first",
    "local_process_zero_only",
    "remove_padding",
    "worker_init_fn",
    "world_process_zero_only",
]

LIMIT_BATCHES_ENV_VAR = "PT_ACC_LIMIT_BATCHES"
"""The variable of the environment that limits the batches of each Trainer that is made."""


class LimitBatches:
    """Context in which each Trainer that is made gets a `LimitBatchesCallback`.

    It sets an environment variable and removes it at its end, as in pytorch-accelerated: a value
    that the variable had before is lost.

    Args:
        num_batches: the number of batches.
    """

    def __init__(self, num_batches: int) -> None:
        self.num_batches = num_batches

    def __enter__(self) -> Self:
        os.environ[LIMIT_BATCHES_ENV_VAR] = str(self.num_batches)
        return self

    def __exit__(self, *_: object) -> None:
        del os.environ[LIMIT_BATCHES_ENV_VAR]


class DataLoaderSlice:
    """The first batches of a loader.

    Args:
        dl: the loader.
        slice_size: the number of batches.
    """

    def __init__(self, dl: Iterable[Any], slice_size: int) -> None:
        self.dl, self.slice_size = dl, slice_size

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.dl, self.slice_size)

    def __len__(self) -> int:
        return self.slice_size


def _rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def _local_rank() -> int:
    # the launchers set it; a group that the user made by hand has one machine
    return int(os.environ.get("LOCAL_RANK", _rank())) if distributed.is_initialized() else 0


def _wait_for_everyone() -> None:
    if distributed.is_initialized():
        distributed.barrier()


def _only_on_zero(function: Callable[..., Any], rank: Callable[[], int]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs) if rank() == 0 else None
        _wait_for_everyone()
        return result

    return call


def local_process_zero_only(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs on the first rank of each machine, and is None on the others."""
    return _only_on_zero(func, _local_rank)


def world_process_zero_only(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs on rank 0, and is None on the others."""
    return _only_on_zero(func, _rank)


def local_process_zero_first(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs on the first rank of each machine before the other ranks."""

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_first = _local_rank() == 0
        result = func(*args, **kwargs) if is_first else None
        _wait_for_everyone()
        return result if is_first else func(*args, **kwargs)

    return call


class ModelEma(nn.Module):
    """An exponential moving average of a model's parameters and buffers.

    `ModelEmaCallback` keeps one by itself; this is for code that updates it by hand.

    Args:
        model: the model, which is copied.
        decay: the weight of the old average in a new one, from 0 to 1.

    Attributes:
        module: the copy with the average, in evaluation mode.
        decay: as given.
    """

    def __init__(self, model: nn.Module, decay: float = 0.9999) -> None:
        super().__init__()
        self.module = deepcopy(model).requires_grad_(False).eval()
        self.decay = decay

    def update_fn(self, ema_model_weights: Tensor, updated_model_weights: Tensor) -> Tensor:
        """Return the new average of a tensor, given the old one and the model's."""
        return self.decay * ema_model_weights + (1.0 - self.decay) * updated_model_weights

    def update(self, model: nn.Module) -> None:
        """Take the model's present weights into the average."""
        self._replace(model, self.update_fn)

    def set(self, model: nn.Module) -> None:
        """Make the model's present weights the average."""
        self._replace(model, lambda _, weights: weights)

    @torch.no_grad()
    def _replace(self, model: nn.Module, new_value: Callable[[Tensor, Tensor], Tensor]) -> None:
        weights = model.state_dict()
        for name, average in self.module.state_dict().items():
            average.copy_(new_value(average, weights[name]))


def worker_init_fn(worker_id: int) -> int:
    """Seed a loader's worker by the operating system's randomness; return another seed.

    Args:
        worker_id: the worker's number.
    """
    return torch.seed() + worker_id
