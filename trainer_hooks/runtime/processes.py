"""What the processes of a run do together; for one process that is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

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
        is_sharded: whether each has a shard of the weights.
        saves_parts: whether each adds its part to a checkpoint, which is a folder then.
        has_common_buffers: whether buffers are the same in all where a window begins.
    """

    is_several = False
    is_sharded = False
    saves_parts = False
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

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The processes by what they share, where weights are sharded."""
        return None

    @property
    def data_topology(self) -> Topology:
        """Which share of the data is this process's."""
        return self.topology

    def place(
        self,
        module: nn.Module,
        *,
        steps: Sequence[str],  # noqa: ARG002 - the interface
        precision: str,  # noqa: ARG002 - the interface
        is_filled: bool,
    ) -> None:
        """Put a module, or this process's shard of it, on the device.

        Args:
            module: the module.
            steps: the names of its methods that are run as its forward is.
            precision: the name of the run's precision.
            is_filled: whether a checkpoint follows that has all weights.
        """
        if any(parameter.is_meta for parameter in module.parameters()):
            from trainer_hooks.runtime.materializing import materialize

            materialize(module, self.root_device, is_filled=is_filled)
        module.to(self.root_device)

    def gathered(self, value: Any, *, keeps: bool) -> Any:  # noqa: ARG002 - the interface
        """Return `value` with whole tensors where there are shards of them.

        Args:
            value: dicts, lists and tuples in one another.
            keeps: whether this process needs what it gets.
        """
        return value

    def divided(
        self,
        checkpoint: dict[str, Any],
        module: nn.Module,  # noqa: ARG002 - the interface
        optimizers: Sequence[Optimizer],  # noqa: ARG002 - the interface
        read: Callable[[Any], object] | None = None,  # noqa: ARG002 - the interface
    ) -> dict[str, Any]:
        """Return a checkpoint as the module and the optimizers of this process take it.

        Args:
            checkpoint: what was read.
            module: what takes the weights.
            optimizers: what take the states; none where they are not restored.
            read: fills tensors by where they belong, where the checkpoint has none of their values.
        """
        return checkpoint

    def gradients(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """Return the gradients that there are, by name."""
        named = module.named_parameters()
        return {name: p.grad for name, p in named if p.grad is not None}

    def load_gradients(
        self,
        module: nn.Module,
        gradients: Mapping[str, torch.Tensor],
        *,
        is_window_open: bool,  # noqa: ARG002 - the interface
    ) -> None:
        """Take gradients back.

        Args:
            module: what is trained.
            gradients: them, by name.
            is_window_open: whether they are this process's own, and not yet reduced.
        """
        for name, parameter in module.named_parameters():
            gradient = gradients.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter.device)

    def go_on_alone(self, module: nn.Module) -> None:
        """Let this process run forwards that others do not; all processes must call it."""

    def go_on_together(self, module: nn.Module) -> None:
        """End that, if it was begun."""

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
