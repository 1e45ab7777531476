"""The ranks of a run: the interface, which does nothing for one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from trainer_hooks.errors import CheckpointError, TrainerHooksError
from trainer_hooks.runtime.parameter_names import plain_name
from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from trainer_hooks.runtime.rank_watchdog import SignalInbox

Decision = TypeVar("Decision")


class Processes:
    """The ranks of a run, here a single one, for which each method is trivial.

    `ProcessGroup` is the class for several. `trainer.strategy` is this object, so its names are
    Lightning's where Lightning has the method.

    Args:
        device: device of this process.
        topology: the ranks, and which of them this process is.

    Attributes:
        root_device: device of this process.
        topology: as passed.
        world_size: number of ranks.
        global_rank: rank of this process.
        local_rank: rank of this process among those of its node.
        node_rank: index of this process's node.
        is_global_zero: whether this is rank 0, which writes files and prints.
        is_distributed: whether there are several ranks.
        is_sharded: whether each rank holds a shard of the weights.
        saves_shards: whether each rank writes its shard of a checkpoint, which is then a folder.
        has_common_buffers: whether buffers are equal on all ranks at the start of a window.
    """

    is_distributed = False
    is_sharded = False
    saves_shards = False
    has_common_buffers = True

    def __init__(self, device: torch.device, topology: Topology = SINGLE_PROCESS) -> None:
        self.root_device = device
        self.topology = topology
        self.world_size = topology.world_size
        self.global_rank = topology.global_rank
        self.local_rank = topology.local_rank
        self.node_rank = topology.node_rank
        self.is_global_zero = topology.is_global_zero

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The device mesh of the ranks, if weights are sharded."""
        return None

    @property
    def data_topology(self) -> Topology:
        """The topology for loading data, which decides on this rank's shard of it."""
        return self.topology

    def place(
        self,
        module: nn.Module,
        *,
        steps: Sequence[str],  # noqa: ARG002 - the interface
        precision: str,  # noqa: ARG002 - the interface
        is_filled: bool,
        units: Sequence[nn.Module] = (),  # noqa: ARG002 - the interface
    ) -> None:
        """Put a module, or this rank's shard of it, on the device.

        Args:
            module: the module.
            steps: names of methods that run forwards.
            precision: name of the run's precision.
            is_filled: whether a checkpoint with all weights is loaded next.
            units: parts whose forwards are called by themselves, besides that of the module.
        """
        # `.to` refuses tensors on the meta device, which have no values to copy.
        if any(parameter.is_meta for parameter in module.parameters()):
            from trainer_hooks.runtime.module_init import materialize

            materialize(module, self.root_device, is_filled=is_filled)
        module.to(self.root_device)

    def gather_shards(self, value: Any, *, keep_result: bool) -> Any:  # noqa: ARG002 - the interface
        """Return `value` with its sharded tensors gathered.

        Args:
            value: nested dicts, lists and tuples.
            keep_result: whether this rank needs the result.
        """
        return value

    def shard_checkpoint(
        self,
        checkpoint: dict[str, Any],
        module: nn.Module,  # noqa: ARG002 - the interface
        read: Callable[[Any], object] | None = None,  # noqa: ARG002 - the interface
    ) -> dict[str, Any]:
        """Return a checkpoint with its weights as the module of this rank loads them.

        Args:
            checkpoint: the checkpoint that was read.
            module: the module that loads the weights.
            read: fills tensors by their path in the checkpoint, if it has them on the meta device.
        """
        return checkpoint

    def shard_optimizer_states(
        self,
        checkpoint: dict[str, Any],
        optimizers: Sequence[Optimizer],  # noqa: ARG002 - the interface
        read: Callable[[Any], object] | None = None,  # noqa: ARG002 - the interface
    ) -> dict[str, Any]:
        """Return a checkpoint with its optimizer states as the optimizers of this rank load them.

        Args:
            checkpoint: the checkpoint that was read.
            optimizers: the optimizers that load the states.
            read: as for `shard_checkpoint`.
        """
        return checkpoint

    def gradients(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """Return the gradients of a module by plain name, without those that are None."""
        named = module.named_parameters()
        return {plain_name(name): p.grad for name, p in named if p.grad is not None}

    def load_gradients(
        self,
        module: nn.Module,
        gradients: Mapping[str, torch.Tensor],
        *,
        is_window_open: bool,  # noqa: ARG002 - the interface
    ) -> None:
        """Restore gradients.

        Args:
            module: the model.
            gradients: the gradients by plain name.
            is_window_open: whether they are this rank's own, not yet reduced.
        """
        for name, parameter in module.named_parameters():
            gradient = gradients.get(plain_name(name))
            parameter.grad = None if gradient is None else gradient.to(parameter.device)

    def begin_uneven_forwards(self, module: nn.Module) -> None:
        """Prepare for forwards that only some ranks run; a collective call."""

    def end_uneven_forwards(self, module: nn.Module) -> None:
        """Undo `begin_uneven_forwards`, if it was called."""

    def broadcast_module_buffers(self, module: torch.nn.Module) -> None:
        """Copy rank 0's buffers to all ranks, so that all evaluate the same model."""

    def signal_inbox(self, numbers: Collection[int]) -> SignalInbox | None:  # noqa: ARG002 - the interface
        """Return where signals are received while the ranks wait for each other; None for one rank.

        Args:
            numbers: the signals that are deferred.
        """
        return None

    def barrier(self, name: str | None = None) -> None:
        """Wait until all ranks have called this.

        Args:
            name: reason of the barrier, for messages about a rank that waits too long.
        """

    def broadcast(self, obj: Any, src: int = 0) -> Any:  # noqa: ARG002 - the interface
        """Return the object of rank `src`; any object that can be pickled."""
        return obj

    def run_on_rank_zero(self, decide: Callable[[], Decision]) -> Decision:
        """Call a function on rank 0 alone, and return its result on all ranks; a collective."""
        return decide()

    def _agree_on(
        self, decide: Callable[[], Decision], faults: type[Exception] = TrainerHooksError
    ) -> Decision:
        """Return rank 0's result of a function on all ranks, or raise its error of these types."""
        decision, fault = None, None
        if self.is_global_zero:
            try:
                decision = decide()
            except faults as error:
                fault = error
        # the error too: ranks that learnt nothing of it would wait here until the watchdog ends
        # them. As a text, since not every exception can be pickled
        result, message = self.broadcast((decision, None if fault is None else str(fault)))
        if fault is not None:
            raise fault
        if message is not None:
            raise CheckpointError(f"rank 0: {message}")
        return cast("Decision", result)

    def gather(self, obj: Any) -> list[Any]:
        """Return the objects of all ranks, by rank; any objects that can be pickled."""
        return [obj]

    def reduce(
        self,
        tensor: Any,
        group: Any = None,  # noqa: ARG002 - the interface
        reduce_op: str | None = "mean",  # noqa: ARG002 - the interface
    ) -> torch.Tensor:
        """Return a number or tensor reduced over all ranks.

        Args:
            tensor: a number, or a tensor of the same shape on all ranks.
            group: a process group of torch; all ranks by default.
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
        """Return the tensors of all ranks stacked along a new first dimension.

        With one rank the tensor itself, without that dimension, as in Lightning.
        """
        return tensor

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002, ARG002
        """Return whether all ranks decide True, or whether any does."""
        return bool(decision)
