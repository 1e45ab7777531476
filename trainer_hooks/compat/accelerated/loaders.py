"""The loaders that a run is made of, from data sets."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["default_arguments", "loader_of", "steps_of", "with_defaults"]


def default_arguments(batch_size: int, *, shuffle: bool) -> dict[str, Any]:
    """Return what a loader is made with unless told otherwise."""
    has_cuda = torch.cuda.is_available()
    cpus = os.cpu_count() or 1
    workers = cpus // torch.cuda.device_count() if has_cuda else cpus
    return {
        "shuffle": shuffle,
        "pin_memory": has_cuda,
        "batch_size": batch_size,
        "num_workers": max(workers, 1),
    }


def with_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a loader's arguments: those given, and the defaults that do not exclude them."""
    arguments = {**defaults, **(given or {})}
    if given is not None and "sampler" in given:
        arguments.pop("shuffle", None)
    return arguments


def loader_of(
    dataset: Any, collate: Callable[[Any], Any] | None, arguments: Mapping[str, Any]
) -> DataLoader[Any]:
    """Return a loader of a data set."""
    return DataLoader(dataset=dataset, collate_fn=collate, **arguments)


def steps_of(batches: int, processes: int, accumulated: int) -> tuple[int, int]:
    """Return the steps of an epoch over all processes, and of one process.

    Args:
        batches: batches of the loader, which the processes share.
        processes: how many there are.
        accumulated: batches of a step.
    """
    local = math.ceil(batches / processes)
    return math.ceil(local * processes / accumulated), math.ceil(local / accumulated)
