"""Which kind of process group a strategy asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.runtime.fsdp_strategy import FSDPStrategy
from trainer_hooks.runtime.process_group import ProcessGroup

if TYPE_CHECKING:
    import torch

    from trainer_hooks.runtime.strategy import DDPStrategy
    from trainer_hooks.runtime.topology import Topology

__all__ = ["group_of"]


def group_of(
    device: torch.device, topology: Topology, options: DDPStrategy | FSDPStrategy
) -> ProcessGroup:
    """Return the processes that a strategy asks for; the arguments are `ProcessGroup`'s."""
    if isinstance(options, FSDPStrategy):
        from trainer_hooks.runtime.sharded_group import ShardedGroup

        return ShardedGroup(device, topology, options)
    return ProcessGroup(device, topology, options)
