"""The rank of this process, the number of processes, and their collectives.

Ranks come from the environment. Without a process group the collectives are those of one process.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed
from torch.utils.data import DistributedSampler

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.utils.data import Dataset

__all__ = [
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "get_global_rank",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_sampler",
    "get_world_size",
    "initialize_dist",
    "is_available",
    "is_initialized",
]


def get_world_size() -> int:
    """Return the number of processes."""
    # not from torch.distributed: names are made before there is a process group
    return int(os.environ.get("WORLD_SIZE", "1"))


def get_global_rank() -> int:
    """Return the rank of this process."""
    return int(os.environ.get("RANK", "0"))


def get_local_world_size() -> int:
    """Return the number of processes on this node."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def get_local_rank() -> int:
    """Return the rank of this process on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def get_node_rank() -> int:
    """Return the number of this node, from 0."""
    # torchrun's name for it
    default = os.environ.get("GROUP_RANK", "0")
    return int(os.environ.get("NODE_RANK", default))


def get_sampler(
    dataset: Dataset[Any],
    *,
    drop_last: bool = False,
    shuffle: bool = False,
    num_replicas: int | None = None,
    rank: int | None = None,
    seed: int = 0,
) -> DistributedSampler[Any]:
    """Return a sampler that gives each process its share of a data set.

    Args:
        dataset: the data set, the same in all processes.
        drop_last: whether the samples that do not divide evenly are left out; else some are
            repeated.
        shuffle: whether the order is drawn anew for each epoch.
        num_replicas: the number of shares; by default one for each process.
        rank: which share; by default that of this process.
        seed: the seed of the order.
    """
    return DistributedSampler(
        dataset,
        drop_last=drop_last,
        shuffle=shuffle,
        num_replicas=get_world_size() if num_replicas is None else num_replicas,
        rank=get_global_rank() if rank is None else rank,
        seed=seed,
    )


def is_available() -> bool:
    """Return whether torch can train on several processes."""
    return distributed.is_available()


def is_initialized() -> bool:
    """Return whether there is a process group."""
    return distributed.is_available() and distributed.is_initialized()


def initialize_dist(device: Any = None, timeout: float = 300.0) -> None:
    """Join the process group of the processes that torchrun started, unless there is one.

    Args:
        device: Composer's name of the device, or the device; the best that there is by default.
        timeout: how long a collective may wait, in seconds.
    """
    if is_initialized() or get_world_size() == 1:
        return
    name = str(getattr(device, "name", device) or ("gpu" if torch.cuda.is_available() else "cpu"))
    if name == "gpu":
        torch.cuda.set_device(get_local_rank())
    distributed.init_process_group(
        "nccl" if name == "gpu" else "gloo", timeout=timedelta(seconds=timeout)
    )


def barrier(group: Any = None) -> None:
    """Wait for all processes."""
    if _is_shared("barrier"):
        distributed.barrier(group)


def all_reduce(tensor: torch.Tensor, reduce_operation: str = "SUM", group: Any = None) -> None:
    """Reduce a tensor over all processes, in place.

    Args:
        tensor: the tensor.
        reduce_operation: the name of the operation in `torch.distributed.ReduceOp`.
        group: a process group; all processes by default.
    """
    if _is_shared("all_reduce"):
        operation = getattr(distributed.ReduceOp, reduce_operation.upper())
        distributed.all_reduce(tensor, op=operation, group=group)


def broadcast(tensor: torch.Tensor, src: int, group: Any = None) -> None:
    """Copy a tensor of one process to all others, in place.

    Args:
        tensor: the tensor.
        src: the rank that it comes from.
        group: a process group; all processes by default.
    """
    if _is_shared("broadcast"):
        distributed.broadcast(tensor, src, group)


def broadcast_object_list(object_list: list[Any], src: int = 0, group: Any = None) -> None:
    """Copy the objects in a list of one process to all others, in place.

    Args:
        object_list: the list, of one length in all processes.
        src: the rank that they come from.
        group: a process group; all processes by default.
    """
    if _is_shared("broadcast_object_list"):
        distributed.broadcast_object_list(object_list, src, group)


def all_gather(tensor: torch.Tensor, group: Any = None) -> Sequence[torch.Tensor]:
    """Return the tensors of all processes, by rank.

    Args:
        tensor: this process's tensor, of one shape in all.
        group: a process group; all processes by default.
    """
    if not _is_shared("all_gather"):
        return [tensor]
    gathered = [torch.empty_like(tensor) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(gathered, tensor, group)
    return gathered


def all_gather_object(obj: Any, group: Any = None) -> list[Any]:
    """Return the objects of all processes, by rank.

    Args:
        obj: this process's object.
        group: a process group; all processes by default.
    """
    if not _is_shared("all_gather_object"):
        return [obj]
    gathered: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(gathered, obj, group)
    return gathered


def _is_shared(name: str) -> bool:
    """Return whether there is a process group.

    Raises:
        OptionError: there is none, and there are several processes.
    """
    if is_initialized():
        return True
    if get_world_size() > 1:
        raise OptionError(
            f"dist.{name}(): there are {get_world_size()} processes and no process group. Make the "
            "Trainer first, or call dist.initialize_dist()."
        )
    return False
