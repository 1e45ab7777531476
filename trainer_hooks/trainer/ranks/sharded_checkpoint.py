"""Save and load a checkpoint of which each rank writes and reads its own shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer_hooks.checkpoint.sharded_folder import read_shards, shard_names_by_path, write_folder
from trainer_hooks.runtime.fsdp import ShardedGroup
from trainer_hooks.runtime.sharded_tensors import extract_shards, map_nested_tensors
from trainer_hooks.trainer.ranks.gathered_checkpoint import gather_into_checkpoint

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager

    from trainer_hooks.runtime.processes import Processes

Place = tuple[Any, ...]

_DIVIDED = ("state_dict", "optimizer_states")
"""The parts of a checkpoint of which each rank reads only its own shards."""


def split_shards(checkpoint: dict[str, Any], processes: Processes) -> tuple[dict[str, Any], Any]:
    """Split a checkpoint into plain data, and the shards and gradients of this rank.

    Returns:
        The checkpoint with empty tensors in place of shards, and the shards by name, as
        `write_folder` takes them.
    """
    left, shards, places = extract_shards(checkpoint)
    entries = left["trainer_hooks"] = {**left["trainer_hooks"], "shards": places}
    gradients = entries.get("gradients")
    if gradients:
        for name, gradient in gradients.items():
            # each rank has its own, which is written as one shard that covers all of it
            shard_name = _name_of_gradient(processes.global_rank, name)
            shards[shard_name] = [gradient.detach(), list(gradient.shape), [0] * gradient.ndim]
        # placeholders: the names must survive, so that a load knows which gradients to read
        entries["gradients"] = {name: torch.empty(0) for name in gradients}
    return left, shards


def _gather_names(checkpoint: dict[str, Any]) -> None:
    """Add to rank 0's checkpoint the paths at which the gradients of all ranks belong."""
    entries = checkpoint["trainer_hooks"]
    # [1:], since rank 0 gathers no state of its own: it is at the top level
    for rank, other in enumerate(
        [entries, *(state.get("parts", {}) for state in entries["processes"][1:])]
    ):
        inner = ["processes", rank, "parts"] if rank else []
        for name in other.get("gradients") or ():
            place = ["trainer_hooks", *inner, "gradients", name]
            entries["shards"][_name_of_gradient(rank, name)] = [place]


def saving_group(processes: Processes) -> Any:
    """Return the process group for saves, which also works beside a training."""
    assert isinstance(processes, ShardedGroup)
    return processes.checkpoint_group


def waiting_for_shards(processes: Processes) -> AbstractContextManager[None]:
    """Tell the hang detection that this rank waits for the other ranks' shards."""
    assert isinstance(processes, ShardedGroup)
    return processes.watchdog.waiting("all parts of a checkpoint")


def write_sharded_checkpoint(
    parted: dict[str, Any],
    path: str | os.PathLike[str],
    group: Any,
    **facts: Any,
) -> str:
    """Write a checkpoint that `build_checkpoint` split into shards.

    Args:
        parted: under `run` the plain data, under `shards` this rank's shards, and under `names`
            the entries of which each rank has its own.
        path: the folder.
        group: the process group for the collectives.
        **facts: the further arguments of `CheckpointSummary.of`.
    """
    # not in the training's process group: this may run in a thread, beside its collectives
    exchange = _GroupExchange(group)
    # a copy of the two dicts that are changed: the same checkpoint may be written to several paths
    run = {**parted["run"], "trainer_hooks": {**parted["run"]["trainer_hooks"]}}
    gather_into_checkpoint(run, exchange, parted["names"])
    # with the names of all ranks' gradients, which rank 0 has only learnt in the gathering
    if exchange.is_global_zero:
        _gather_names(run)
    return write_folder(
        run if exchange.is_global_zero else {}, parted["shards"], path, group, **facts
    )


class _GroupExchange:
    """Broadcast and gather in the process group for saves."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.is_global_zero = dist.get_rank(group) == 0

    def broadcast(self, obj: Any) -> Any:
        """Return rank 0's object."""
        box = [obj]
        dist.broadcast_object_list(box, 0, group=self._group, device=torch.device("cpu"))
        return box[0]

    def gather_to_zero(self, obj: Any) -> list[Any]:
        """Return the objects of all ranks on rank 0, and an empty list on the others."""
        size = dist.get_world_size(self._group)
        gathered: list[Any] | None = [None] * size if self.is_global_zero else None
        dist.gather_object(obj, gathered, group=self._group)
        return gathered or []


class ShardReader:
    """Read the tensors that this rank needs from a sharded checkpoint.

    Args:
        checkpoint: the checkpoint with tensors on the meta device, as `select_rank_state`
            returned it.
        path: the folder.
        rank: this process's rank.
    """

    def __init__(self, checkpoint: dict[str, Any], path: str, rank: int) -> None:
        self._path = path
        self._names = shard_names_by_path(checkpoint)
        mine = ("trainer_hooks", "processes", rank, "parts")
        # `select_rank_state` has moved this rank's own state to the top level: so are its tensors
        for place, name in list(self._names.items()):
            if place[: len(mine)] == mine:
                self._names["trainer_hooks", *place[len(mine) :]] = name

    def __call__(self, into: dict[Place, Tensor]) -> None:
        """Fill tensors, which may be sharded, given by their paths in the checkpoint."""
        first: dict[str, Tensor] = {}
        for place, tensor in into.items():
            name = self._names[place]
            # a tied weight belongs at two paths, and each call fills one tensor of a name
            if name in first:
                read_shards(self._path, {name: tensor})
            first.setdefault(name, tensor)
        read_shards(self._path, first)

    def filled(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return a checkpoint with all tensors read, except those that ranks read as shards."""
        into: dict[Place, Tensor] = {}

        def fill(tensor: Tensor, place: Place) -> Tensor:
            if tensor.is_meta and place in self._names:
                into[place] = tensor = torch.empty(tensor.shape, dtype=tensor.dtype)
            return tensor

        rest = {key: value for key, value in checkpoint.items() if key not in _DIVIDED}
        complete = {**checkpoint, **map_nested_tensors(rest, fill)}
        self(into)
        return complete


def _name_of_gradient(rank: int, name: str) -> str:
    return f"processes.{rank}.gradients.{name}"
