"""Several processes that each keep a shard of the weights."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime import sharded_tensors as tensors
from trainer_hooks.runtime.process_group import ProcessGroup
from trainer_hooks.runtime.sharding import keep_gathered, let_go, shard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from trainer_hooks.runtime.fsdp_strategy import FSDPStrategy
    from trainer_hooks.runtime.topology import Topology

__all__ = ["ShardedGroup"]

_TENSOR = ("tensor_parallel", "tp")
"""Names of a mesh's dimension whose processes share a batch."""


class ShardedGroup(ProcessGroup):
    """Several processes whose weights, gradients and optimizer states are sharded.

    Args:
        device: where this process computes.
        topology: which process this is.
        options: how they train together.

    Attributes:
        is_sharded: True.
    """

    is_sharded = True
    options: FSDPStrategy

    def __init__(self, device: torch.device, topology: Topology, options: FSDPStrategy) -> None:
        super().__init__(device, topology, options)
        self.saves_parts = options.state_dict_type == "sharded"
        self._mesh: DeviceMesh | None = None
        self._saving: Any = None
        self._alone: list[tuple[Any, Any]] = []

    @property
    def device_mesh(self) -> DeviceMesh:
        """The processes, by what they share."""
        self.start()
        if self._mesh is None:
            self._mesh = self._make_mesh()
        return self._mesh

    @property
    def data_topology(self) -> Topology:
        """Which share of the data is this process's: one for those that share batches."""
        mesh = self._data_mesh
        if mesh is self.device_mesh:
            return self.topology
        rank, size = 0, 1
        for dimension in range(mesh.ndim):
            rank = rank * mesh.size(dimension) + mesh.get_local_rank(dimension)
            size *= mesh.size(dimension)
        return replace(self.topology, world_size=size, global_rank=rank)

    @property
    def _data_mesh(self) -> DeviceMesh:
        """The part of the mesh over which weights are sharded and batches divided."""
        mesh = self.device_mesh
        names = mesh.mesh_dim_names or ()
        others = tuple(name for name in names if name not in _TENSOR)
        if len(others) == len(names):
            return mesh
        return mesh[others]

    def place(
        self, module: nn.Module, *, steps: Sequence[str], precision: str, is_filled: bool
    ) -> None:
        """Shard a module, and give each process its part on its device."""
        with self.alarm.waiting("the shards of the module"):
            shard(
                module,
                self.options,
                self._data_mesh,
                self.root_device,
                precision,
                is_filled=is_filled,
                share=lambda tensor: dist.broadcast(tensor, 0, group=self._group_of(tensor)),
            )
        for name in steps:
            _gather_before(module, name)

    def go_on_alone(self, module: nn.Module) -> None:
        """Gather all weights, so that forwards ask nothing of the others."""
        with self.alarm.waiting("all weights"):
            self._alone = keep_gathered(module)

    def go_on_together(self, module: nn.Module) -> None:
        """Let the weights go that were gathered for forwards of one process."""
        if self._alone:
            let_go(module, self._alone)
            self._alone = []

    def share_buffers(self, module: nn.Module) -> None:
        """Make a module's buffers rank 0's, where they are to be one."""
        if self.has_common_buffers:
            with self.alarm.waiting("buffers"):
                for tensor in module.buffers():
                    if not isinstance(tensor, DTensor):
                        dist.broadcast(tensor, 0, group=self._group_of(tensor))

    @property
    def saving_group(self) -> Any:
        """The process group in which checkpoints are written, also while a training goes on."""
        self.start()
        if self._saving is None:
            self._saving = dist.new_group(backend="gloo", timeout=self.options.timeout)
        return self._saving

    def gathered(self, value: Any, *, keeps: bool) -> Any:
        """Return `value` with its sharded tensors whole; see `sharded_tensors.gathered`."""
        with self.alarm.waiting("the weights of all"):
            return tensors.gathered(value, keeps=keeps)

    def divided(
        self,
        checkpoint: dict[str, Any],
        module: nn.Module,
        optimizers: Sequence[Optimizer],
        read: Callable[[Any], object] | None = None,
    ) -> dict[str, Any]:
        """Return a checkpoint with this process's shards of its weights and optimizer states."""
        divider = tensors.Divider(read)
        weights = divider.weights(checkpoint["state_dict"], module.state_dict())
        made = {**checkpoint, "state_dict": weights}
        if optimizers:
            pairs = zip(checkpoint["optimizer_states"], optimizers, strict=True)
            made["optimizer_states"] = [
                divider.optimizer_state(state, optimizer, ("optimizer_states", number))
                for number, (state, optimizer) in enumerate(pairs)
            ]
        divider.finish()
        return made

    def gradients(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """Return, by name, the gradients that this process holds, each of them whole."""
        found = tensors.held_gradients(module)
        for name, parameter in module.named_parameters():
            name = tensors.plain_name(name)
            if name not in found and parameter.grad is not None:
                found[name] = tensors.gathered(parameter.grad, keeps=True)
        return found

    def load_gradients(
        self, module: nn.Module, gradients: Mapping[str, torch.Tensor], *, is_window_open: bool
    ) -> None:
        """Take gradients back.

        Args:
            module: what is trained.
            gradients: whole ones, by name.
            is_window_open: whether they are this process's own, and not yet reduced.
        """
        if is_window_open:
            tensors.hold_gradients(module, gradients)
            return
        for name, parameter in module.named_parameters():
            gradient = gradients.get(tensors.plain_name(name))
            if gradient is not None and isinstance(parameter, DTensor):
                gradient = tensors.divided(gradient, parameter)
            parameter.grad = gradient

    def _make_mesh(self) -> DeviceMesh:
        options, kind, size = self.options, self.root_device.type, self.world_size
        wish = options.device_mesh
        if isinstance(wish, DeviceMesh):
            return wish
        if wish is not None:
            copies, shards = wish
            if copies * shards != size:
                raise OptionError(
                    f"FSDPStrategy(device_mesh={wish!r}): there are {size} processes, and these "
                    f"are {copies * shards}. Their product must be the number of processes."
                )
            return init_device_mesh(kind, wish, mesh_dim_names=("replicate", "shard"))
        among = options.tensor_parallel_size
        if among == 1:
            return init_device_mesh(kind, (size,), mesh_dim_names=("data_parallel",))
        if size % among:
            raise OptionError(
                f"FSDPStrategy(tensor_parallel_size={among}): {size} processes cannot be divided "
                "by it."
            )
        names = ("data_parallel", "tensor_parallel")
        return init_device_mesh(kind, (size // among, among), mesh_dim_names=names)


def _gather_before(module: nn.Module, name: str) -> None:
    """Let a step of a module gather its weights as the forward does."""
    step = getattr(module, name)
    if hasattr(step, "gathers_weights"):
        return
    register_fsdp_forward_method(module, name)
    through = getattr(module, name)

    @functools.wraps(step)  # whose arguments are looked at
    def gathering(*args: Any, **kwargs: Any) -> Any:
        return through(*args, **kwargs)

    gathering.gathers_weights = True  # type: ignore[attr-defined]
    module.__dict__[name] = gathering
