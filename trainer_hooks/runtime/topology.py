"""Which process this is among how many."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SINGLE_PROCESS", "Topology"]


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
