"""Which this process is among how many: read once, from who started it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SINGLE_PROCESS", "Topology", "read_topology"]


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes of a run.

    Attributes:
        world_size: number of processes.
        global_rank: this process's number among all.
        local_rank: its number among those of its machine.
        node_rank: the machine's number.
        local_world_size: number of processes of this machine.
        launcher: who started them, in words; empty for one process.
    """

    world_size: int = 1
    global_rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    local_world_size: int = 1
    launcher: str = ""

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.global_rank == 0

    @property
    def num_nodes(self) -> int:
        """The number of machines."""
        return -(-self.world_size // self.local_world_size)


SINGLE_PROCESS = Topology()

_SHELLS = frozenset({"bash", "interactive"})
"""Names of SLURM jobs that are a shell, whose tasks were not started with it; as in Lightning."""

_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


def read_topology(environ: Mapping[str, str] = os.environ) -> Topology:
    """Return which this process is, by a process group that there is, or else by the environment.

    Raises:
        OptionError: several processes were started in a way that tells too little of them.
    """
    if dist.is_available() and dist.is_initialized():
        return _of_group(environ)
    world_size = _number(environ, "WORLD_SIZE", 1)
    if world_size == 1:
        _refuse_tasks(environ)
        return SINGLE_PROCESS
    missing = [name for name in _OF_TORCHRUN if name not in environ]
    if missing:
        raise OptionError(
            f"WORLD_SIZE={world_size} in the environment: {', '.join(missing)} must be there too. "
            f"Start it with torchrun --nproc-per-node {world_size} train.py, or unset WORLD_SIZE."
        )
    return Topology(
        world_size,
        _number(environ, "RANK", 0),
        _number(environ, "LOCAL_RANK", 0),
        _number(environ, "GROUP_RANK", 0),
        _number(environ, "LOCAL_WORLD_SIZE", 1),
        "torchrun",
    )


def _of_group(environ: Mapping[str, str]) -> Topology:
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size == 1:
        return SINGLE_PROCESS
    local_world_size = _number(environ, "LOCAL_WORLD_SIZE", world_size)
    return Topology(
        world_size,
        rank,
        _number(environ, "LOCAL_RANK", rank % local_world_size),
        _number(environ, "GROUP_RANK", rank // local_world_size),
        local_world_size,
        "a process group that was there",
    )


def _refuse_tasks(environ: Mapping[str, str]) -> None:
    tasks = _number(environ, "SLURM_NTASKS", 1)
    is_shell = environ.get("SLURM_JOB_NAME") in _SHELLS
    if tasks > 1 and not is_shell and "RANK" not in environ:
        raise OptionError(
            f"SLURM_NTASKS={tasks} in the environment: processes that srun starts do not find each "
            "other yet, and each would train alone. Start one task a node, as in srun --ntasks-per-"
            'node 1 torchrun ..., or pass Trainer(strategy="single_device").'
        )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise OptionError(f"{name}={text!r} in the environment: must be an integer.") from None
