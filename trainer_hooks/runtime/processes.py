"""What the processes of a run do together; for one process that is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology

if TYPE_CHECKING:
    import torch

__all__ = ["Processes"]


class Processes:
    """The processes of a run: here one, for which nothing is to be done.

    `ProcessGroup` is that of several. `trainer.strategy` is this object, so that its names are
    Lightning's where there are some.

    Args:
        device: where this process computes.
        topology: which process this is.

    Attributes:
        is_several: whether there are others.
        has_common_buffers: whether buffers are the same in all where a window begins.
    """

    is_several = False
    has_common_buffers = True

    def __init__(self, device: torch.device, topology: Topology = SINGLE_PROCESS) -> None:
        self.root_device = device
        self.topology = topology

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self.topology.world_size

    @property
    def global_rank(self) -> int:
        """This process's number among all."""
        return self.topology.global_rank

    @property
    def local_rank(self) -> int:
        """This process's number among those of its machine."""
        return self.topology.local_rank

    @property
    def node_rank(self) -> int:
        """The number of its machine."""
        return self.topology.node_rank

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.topology.is_global_zero

    def share_buffers(self, module: torch.nn.Module) -> None:
        """Make a module's buffers rank 0's, so that all evaluate the same model."""

    def barrier(self, name: str | None = None) -> None:
        """Wait until all processes have come here.

        Args:
            name: what it is for, which is told where a process waits too long.
        """

    def broadcast(self, obj: Any, src: int = 0) -> Any:  # noqa: ARG002 - the interface
        """Return what process `src` has given; any object that can be pickled."""
        return obj

    def gather(self, obj: Any) -> list[Any]:
        """Return what all processes have given, in their order; any objects that can be pickled."""
        return [obj]

    def reduce(
        self,
        tensor: Any,
        group: Any = None,  # noqa: ARG002 - the interface
        reduce_op: str | None = "mean",  # noqa: ARG002 - the interface
    ) -> torch.Tensor:
        """Return a number or tensor reduced over all processes: its mean, or by another operation.

        Args:
            tensor: it; of one shape on all.
            group: a group of torch's; all unless given.
            reduce_op: `"mean"`, `"avg"`, `"sum"`, `"min"` or `"max"`.
        """
        import torch

        return torch.as_tensor(tensor)

    def all_gather(
        self,
        tensor: torch.Tensor,
        group: Any = None,  # noqa: ARG002 - the interface
        sync_grads: bool = False,  # noqa: ARG002 - the interface
    ) -> torch.Tensor:
        """Return the tensors of all processes in one, with a new first dimension."""
        return tensor.unsqueeze(0)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002, ARG002
        """Return whether all processes say so, or whether any does."""
        return bool(decision)
