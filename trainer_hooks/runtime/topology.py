"""Which process this is among how many."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SINGLE_PROCESS", "Topology", "require_single_process"]


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes of a run.

    Attributes:
        world_size: number of processes.
        global_rank: this process's number among all.
        local_rank: its number among those of its machine.
        node_rank: the machine's number.
    """

    world_size: int = 1
    global_rank: int = 0
    local_rank: int = 0
    node_rank: int = 0

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.global_rank == 0


SINGLE_PROCESS = Topology()


_SHELLS = frozenset({"bash", "interactive"})
"""Names of SLURM jobs that are a shell, whose tasks were not started with it; as in Lightning."""


def require_single_process(environ: Mapping[str, str] = os.environ) -> None:
    """Make sure that this process was not started as one of several, which would train apart.

    Raises:
        UsageError: a launcher says so in the environment.
    """
    is_shell = environ.get("SLURM_JOB_NAME") in _SHELLS
    for name, launcher, alone in (
        ("WORLD_SIZE", "torchrun or another launcher", "python, without a launcher"),
        ("SLURM_NTASKS", "SLURM", "srun --ntasks=1"),
    ):
        count = environ.get(name, "")
        if not count.isdecimal() or int(count) < 2 or (launcher == "SLURM" and is_shell):
            continue
        raise UsageError(
            f"Trainer(...) in an environment with {name}={count}: {launcher} started this as one "
            f"of {count} processes, and training in several processes is not available yet; each "
            f"would train a model of its own. Start one process with {alone}, or, where it is "
            f"alone, take {name} out of its environment."
        )
