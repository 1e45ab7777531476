"""Which this process is among how many: read once, from who started it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime.slurm import number_in, read_slurm

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EXISTING",
    "NOTEBOOK",
    "SCRIPT",
    "SINGLE_PROCESS",
    "STARTED",
    "Topology",
    "read_topology",
]


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
        nodes: the number of machines; 0 where it follows from the other numbers.
        address: `host:port` at which they meet; empty where the environment says it to torch.
        starts: how this process is to start the others, `"script"` or `"fork"`; empty if they are
            there.
        reason: why, in words.
    """

    world_size: int = 1
    global_rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    local_world_size: int = 1
    launcher: str = ""
    nodes: int = 0
    address: str = ""
    starts: str = ""
    reason: str = ""

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.global_rank == 0

    @property
    def num_nodes(self) -> int:
        """The number of machines."""
        return self.nodes or -(-self.world_size // self.local_world_size)

    @property
    def origin(self) -> str:
        """Where the processes come from, in words."""
        if self.launcher == EXISTING:
            return f"in {EXISTING}"
        verb = "forked from" if self.launcher == NOTEBOOK else "started by"
        return f"{verb} {self.launcher}{f' because {self.reason}' if self.reason else ''}"


SINGLE_PROCESS = Topology()
EXISTING = "a process group that was there"
SCRIPT = "this script"
NOTEBOOK = "this notebook"

STARTED = "TRAINER_HOOKS_STARTED"
"""The variable that a process has which a Trainer has started: by what, in words."""

_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


def read_topology(environ: Mapping[str, str] = os.environ) -> Topology:
    """Return which this process is, by a process group that there is, or else by the environment.

    Raises:
        OptionError: several processes were started in a way that tells too little of them.
    """
    if dist.is_available() and dist.is_initialized():
        return _of_group(environ)
    if "RANK" not in environ and "SLURM_NTASKS" in environ:
        found = read_slurm(environ)
        if found:
            return Topology(**found)
    world_size = number_in(environ, "WORLD_SIZE", 1)
    return SINGLE_PROCESS if world_size == 1 else _of_torchrun(environ, world_size)


def _of_torchrun(environ: Mapping[str, str], world_size: int) -> Topology:
    missing = [name for name in _OF_TORCHRUN if name not in environ]
    if missing:
        raise OptionError(
            f"WORLD_SIZE={world_size} in the environment: {', '.join(missing)} must be there too. "
            f"Start it with torchrun --nproc-per-node {world_size} train.py, or unset WORLD_SIZE."
        )
    launcher = environ.get(STARTED, "torchrun")
    return Topology(
        world_size,
        number_in(environ, "RANK", 0),
        number_in(environ, "LOCAL_RANK", 0),
        number_in(environ, "GROUP_RANK", 0),
        number_in(environ, "LOCAL_WORLD_SIZE", 1),
        launcher,
        address=f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}" if STARTED in environ else "",
    )


def _of_group(environ: Mapping[str, str]) -> Topology:
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size == 1:
        return SINGLE_PROCESS
    local_world_size = number_in(environ, "LOCAL_WORLD_SIZE", world_size)
    return Topology(
        world_size,
        rank,
        number_in(environ, "LOCAL_RANK", rank % local_world_size),
        number_in(environ, "GROUP_RANK", rank // local_world_size),
        local_world_size,
        EXISTING,
    )
