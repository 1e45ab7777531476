"""Parted: a checkpoint to which each process adds its part, saved and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer_hooks.checkpoint import names_by_place, read_shards, write_folder
from trainer_hooks.runtime import ShardedGroup, change_tensors, taken_apart
from trainer_hooks.trainer.run.together import bring_together

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager

    from trainer_hooks.runtime import Processes

__all__ = [
    "PartsReader", "group_of_saves", "take_apart", "waiting_for_all", "write_parts",
]  # fmt: skip

Place = tuple[Any, ...]

_DIVIDED = ("state_dict", "optimizer_states")
"""What of a checkpoint each process reads its own shards of."""


def take_apart(checkpoint: dict[str, Any], processes: Processes) -> tuple[dict[str, Any], Any]:
    """Take what is sharded, and this process's own gradients, out of a checkpoint.

    Returns:
        It with empty tensors in their places, and the parts by name, as `write_folder` takes them.
    """
    left, shards, places = taken_apart(checkpoint)
    own = left["trainer_hooks"] = {**left["trainer_hooks"], "shards": places}
    gradients = own.get("gradients")
    if gradients:
        for name, gradient in gradients.items():
            known = _name_of_gradient(processes.global_rank, name)
            shards[known] = [gradient.detach(), list(gradient.shape), [0] * gradient.ndim]
        own["gradients"] = {name: torch.empty(0) for name in gradients}
    return left, shards


def _gather_names(checkpoint: dict[str, Any]) -> None:
    """Note in the first process's checkpoint where the gradients of all processes belong."""
    own = checkpoint["trainer_hooks"]
    for rank, other in enumerate([own, *(one.get("parts", {}) for one in own["processes"][1:])]):
        inner = ["processes", rank, "parts"] if rank else []
        for name in other.get("gradients") or ():
            place = ["trainer_hooks", *inner, "gradients", name]
            own["shards"][_name_of_gradient(rank, name)] = [place]


def group_of_saves(processes: Processes) -> Any:
    """Return the process group in which checkpoints are written, also beside a training."""
    assert isinstance(processes, ShardedGroup)
    return processes.saving_group


def waiting_for_all(processes: Processes) -> AbstractContextManager[None]:
    """Note that this process waits for the parts of the others."""
    assert isinstance(processes, ShardedGroup)
    return processes.alarm.waiting("all parts of a checkpoint")


def write_parts(
    parted: dict[str, Any],
    path: str | os.PathLike[str],
    group: Any,
    *,
    module: str,
    saved_at: int,
    origin: str,
    process: str,
) -> str:
    """Write a checkpoint that was taken apart.

    Args:
        parted: under `run` what is no shard, under `shards` what is, and under `names` what of the
            first each process has one of its own.
        path: where, and so on, as `write_folder` takes them.
        group: likewise.
        module: likewise.
        saved_at: likewise.
        origin: likewise.
        process: likewise.
    """
    tellers = _Tellers(group)
    run = {**parted["run"], "trainer_hooks": {**parted["run"]["trainer_hooks"]}}
    bring_together(run, tellers, parted["names"])
    if tellers.is_global_zero:
        _gather_names(run)
    return write_folder(
        run if tellers.is_global_zero else {},
        parted["shards"],
        path,
        group,
        module=module,
        saved_at=saved_at,
        origin=origin,
        process=process,
    )


class _Tellers:
    """What processes tell each other by in a process group of their saves' own."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.is_global_zero = dist.get_rank(group) == 0

    def broadcast(self, obj: Any) -> Any:
        """Return what the first process has given."""
        box = [obj]
        dist.broadcast_object_list(box, 0, group=self._group, device=torch.device("cpu"))
        return box[0]

    def gather_to_zero(self, obj: Any) -> list[Any]:
        """Return what all processes have given to the first; an empty list to the others."""
        size = dist.get_world_size(self._group)
        found: list[Any] | None = [None] * size if self.is_global_zero else None
        dist.gather_object(obj, found, group=self._group)
        return found or []


class PartsReader:
    """Reads what of a folder a process needs.

    Args:
        checkpoint: what it holds, its tensors on the device meta, as `own_part` returned it.
        path: the folder.
        rank: this process's number.
    """

    def __init__(self, checkpoint: dict[str, Any], path: str, rank: int) -> None:
        self._path = path
        self._names = names_by_place(checkpoint)
        mine = ("trainer_hooks", "processes", rank, "parts")
        for place, name in list(self._names.items()):
            if place[: len(mine)] == mine:
                self._names["trainer_hooks", *place[len(mine) :]] = name

    def __call__(self, into: dict[Place, Tensor]) -> None:
        """Fill tensors, which may be sharded, by where they belong in the checkpoint."""
        first: dict[str, Tensor] = {}
        for place, tensor in into.items():
            name = self._names[place]
            if name in first:  # one that is in two places
                read_shards(self._path, {name: tensor})
            first.setdefault(name, tensor)
        read_shards(self._path, first)

    def filled(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return a checkpoint with all tensors but those of which each process has a shard."""
        into: dict[Place, Tensor] = {}

        def fill(tensor: Tensor, place: Place) -> Tensor:
            if tensor.is_meta and place in self._names:
                into[place] = tensor = torch.empty(tensor.shape, dtype=tensor.dtype)
            return tensor

        rest = {key: value for key, value in checkpoint.items() if key not in _DIVIDED}
        found = {**checkpoint, **change_tensors(rest, fill)}
        self(into)
        return found


def _name_of_gradient(rank: int, name: str) -> str:
    return f"processes.{rank}.gradients.{name}"
