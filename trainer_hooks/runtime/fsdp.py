"""Train with sharded weights: torch's `fully_shard` (FSDP2) layer by layer.

`ShardedGroup` is the group of ranks, `shard` shards a module, and `ShardedGradientSync` reduces the
gradients of each accumulation window.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from trainer_hooks.errors import ModuleError, OptionError, UsageError
from trainer_hooks.runtime import fsdp_internals as internals
from trainer_hooks.runtime import sharded_tensors as tensors
from trainer_hooks.runtime.gradient_sync import require_no_unused_parameters
from trainer_hooks.runtime.module_init import materialize
from trainer_hooks.runtime.parameter_names import plain_name
from trainer_hooks.runtime.process_group import ProcessGroup
from trainer_hooks.runtime.strategy_options import parse_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from trainer_hooks.runtime.strategy_options import FSDPStrategy
    from trainer_hooks.runtime.topology import Topology

_HALF_DTYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)
"""Layers without a forward, before which nothing could gather their weights."""


_TENSOR_PARALLEL_NAMES = ("tensor_parallel", "tp")
"""Names of a mesh dimension whose ranks share a batch."""


class ShardedGroup(ProcessGroup):
    """Several ranks whose weights, gradients and optimizer states are sharded.

    Args:
        device: device of this process.
        topology: the ranks, and which of them this process is.
        options: the options of the strategy.

    Attributes:
        is_sharded: True.
    """

    is_sharded = True
    options: FSDPStrategy

    def __init__(self, device: torch.device, topology: Topology, options: FSDPStrategy) -> None:
        super().__init__(device, topology, options)
        self.saves_shards = options.state_dict_type == "sharded"
        self._mesh: DeviceMesh | None = None
        self._checkpoint_group: Any = None
        self._gathered_groups: list[tuple[Any, Any]] = []

    @property
    def device_mesh(self) -> DeviceMesh:
        """The device mesh of the ranks."""
        self.start()
        if self._mesh is None:
            self._mesh = self._make_mesh()
        return self._mesh

    @property
    def data_topology(self) -> Topology:
        """The topology for loading data: ranks that share batches count as one."""
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
        """The part of the mesh over which weights are sharded and batches differ."""
        mesh = self.device_mesh
        names = mesh.mesh_dim_names or ()
        others = tuple(name for name in names if name not in _TENSOR_PARALLEL_NAMES)
        if len(others) == len(names):
            return mesh
        return mesh[others]

    def place(
        self,
        module: nn.Module,
        *,
        steps: Sequence[str],
        precision: str,
        is_filled: bool,
        units: Sequence[nn.Module] = (),
    ) -> None:
        """Shard a module and put this rank's shard on the device."""
        with self.watchdog.waiting("the shards of the module"):
            shard(
                module,
                self.options,
                self._data_mesh,
                self.root_device,
                precision,
                is_filled=is_filled,
                units=units,
                # all ranks start from rank 0's weights, as with DDP
                broadcast=lambda tensor: dist.broadcast(tensor, 0, group=self._group_of(tensor)),
            )
        for name in steps:
            _gather_weights_before(module, name)

    def begin_uneven_forwards(self, module: nn.Module) -> None:
        """Gather all weights, so that a forward communicates with no other rank."""
        with self.watchdog.waiting("all weights"):
            # as the first forward does. It may change the value of the root that is kept below
            internals.begin_run(module)
            for layer in internals.sharded_layers(module):
                layer.unshard()
                for group in internals.parameter_groups(layer):
                    self._gathered_groups.append((group, group.post_forward_mesh_info))
                    # set directly: set_reshard_after_forward would lose the previous value
                    group.post_forward_mesh_info = None

    def end_uneven_forwards(self, module: nn.Module) -> None:
        """Release the weights that `begin_uneven_forwards` gathered, but this rank's shards."""
        if not self._gathered_groups:
            return
        for group, info in self._gathered_groups:
            group.post_forward_mesh_info = info
        for layer in internals.sharded_layers(module):
            layer.reshard()
        self._gathered_groups = []

    def broadcast_module_buffers(self, module: nn.Module) -> None:
        """Copy rank 0's buffers to all ranks, if the strategy's `broadcast_buffers` is set."""
        if self.has_common_buffers:
            with self.watchdog.waiting("buffers"):
                for tensor in module.buffers():
                    if not isinstance(tensor, DTensor):
                        dist.broadcast(tensor, 0, group=self._group_of(tensor))

    @property
    def checkpoint_group(self) -> Any:
        """The process group in which checkpoints are written, also while training continues."""
        assert self._checkpoint_group is not None, "made by `make_groups` as the run began"
        return self._checkpoint_group

    def make_groups(self) -> None:
        """Make the groups of the mesh and of sharded saves, as the run begins."""
        with self.watchdog.waiting("the process groups"):
            assert self.device_mesh is not None
            if self.saves_shards and self._checkpoint_group is None:
                # a group of its own: a writing thread's collectives must not meet the training's
                timeout = self.options.timeout
                self._checkpoint_group = dist.new_group(backend="gloo", timeout=timeout)

    def gather_shards(self, value: Any, *, keep_result: bool) -> Any:
        """Return `value` with its sharded tensors gathered; see `sharded_tensors.gather_shards`."""
        with self.watchdog.waiting("the weights of all"):
            return tensors.gather_shards(value, keep_result=keep_result)

    def shard_checkpoint(
        self,
        checkpoint: dict[str, Any],
        module: nn.Module,
        read: Callable[[Any], object] | None = None,
    ) -> dict[str, Any]:
        """Return a checkpoint with this rank's shards of its weights."""
        sharder = tensors.CheckpointSharder(read)
        weights = sharder.weights(checkpoint["state_dict"], module.state_dict())
        sharder.finish()
        return {**checkpoint, "state_dict": weights}

    def shard_optimizer_states(
        self,
        checkpoint: dict[str, Any],
        optimizers: Sequence[Optimizer],
        read: Callable[[Any], object] | None = None,
    ) -> dict[str, Any]:
        """Return a checkpoint with this rank's shards of its optimizer states."""
        sharder = tensors.CheckpointSharder(read)
        pairs = zip(checkpoint["optimizer_states"], optimizers, strict=True)
        states = [
            sharder.optimizer_state(state, optimizer, ("optimizer_states", number))
            for number, (state, optimizer) in enumerate(pairs)
        ]
        sharder.finish()
        return {**checkpoint, "optimizer_states": states}

    def gradients(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """Return the gradients that this rank holds, by name and unsharded."""
        gradients = internals.accumulated_gradients(module)
        for name, parameter in module.named_parameters():
            name = plain_name(name)
            if name not in gradients and parameter.grad is not None:
                gradients[name] = tensors.gather_shards(parameter.grad, keep_result=True)
        return gradients

    def load_gradients(
        self, module: nn.Module, gradients: Mapping[str, torch.Tensor], *, is_window_open: bool
    ) -> None:
        """Restore gradients.

        Args:
            module: the model.
            gradients: unsharded gradients by name.
            is_window_open: whether they are this rank's own, not yet reduced.
        """
        if is_window_open:
            with self.watchdog.waiting("all weights"):
                internals.set_accumulated_gradients(module, gradients)
            return
        for name, parameter in module.named_parameters():
            gradient = gradients.get(plain_name(name))
            if gradient is not None and isinstance(parameter, DTensor):
                gradient = tensors.take_shard(gradient, parameter)
            parameter.grad = gradient

    def _make_mesh(self) -> DeviceMesh:
        """Make the device mesh that the strategy's options describe."""
        options, device_type, size = self.options, self.root_device.type, self.world_size
        requested = options.device_mesh
        if isinstance(requested, DeviceMesh):
            return requested
        if requested is not None:
            replicas, shards = requested
            if replicas * shards != size:
                raise OptionError(
                    f"FSDPStrategy(device_mesh={requested!r}): there are {size} processes, and "
                    f"these are {replicas * shards}. Their product must be the number of processes."
                )
            return init_device_mesh(device_type, requested, mesh_dim_names=("replicate", "shard"))
        tensor_parallel = options.tensor_parallel_size
        if tensor_parallel == 1:
            return init_device_mesh(device_type, (size,), mesh_dim_names=("data_parallel",))
        if size % tensor_parallel:
            raise OptionError(
                f"FSDPStrategy(tensor_parallel_size={tensor_parallel}): {size} processes cannot be "
                "divided by it."
            )
        names = ("data_parallel", "tensor_parallel")
        return init_device_mesh(
            device_type, (size // tensor_parallel, tensor_parallel), mesh_dim_names=names
        )


def _gather_weights_before(module: nn.Module, name: str) -> None:
    """Let a step of a module gather the weights, as its forward does."""
    step = getattr(module, name)
    if hasattr(step, "gathers_weights"):
        return
    # fully_shard gathers the weights in `forward` only, and a step may use them outside of it.
    register_fsdp_forward_method(module, name)
    gathering_step = getattr(module, name)

    # keeps the signature, from which the loops derive the arguments to pass
    @functools.wraps(step)
    def gathering(*args: Any, **kwargs: Any) -> Any:
        return gathering_step(*args, **kwargs)

    gathering.gathers_weights = True  # type: ignore[attr-defined]
    module.__dict__[name] = gathering


def shard(
    module: nn.Module,
    options: FSDPStrategy,
    mesh: DeviceMesh,
    device: torch.device,
    precision: str,
    *,
    is_filled: bool,
    broadcast: Callable[[Tensor], object],
    units: Sequence[nn.Module] = (),
) -> None:
    """Shard a module in place; layers that are sharded already stay as they are.

    A module on the meta device is allocated and initialised here one layer at a time, so that no
    process holds all weights at once.

    Args:
        module: the module.
        options: the options of the strategy.
        mesh: the ranks to shard over.
        device: device of this process.
        precision: name of the run's precision.
        is_filled: whether a checkpoint with all weights is loaded next.
        broadcast: copies rank 0's values of a tensor to all ranks, in place.
        units: parts that are gathered by themselves too, as their forwards are called alone.

    Raises:
        ModuleError: layers that are gathered separately share a parameter, or a layer on the meta
            device cannot initialise its weights.
        OptionError: the policy selects no layer.
    """
    # `configure_model` has sharded it, or it is fitted again.
    if isinstance(module, FSDPModule):
        materialize(module, device, is_filled=is_filled)
        return
    layers = _layers_to_shard(module, options)
    # inner layers first, and the units contain those of the policy
    layers += [unit for unit in units if all(unit is not layer for layer in layers)]
    _require_own_parameters(module, layers)
    _checkpoint_activations(module, options)
    mixed_precision, half = options.mixed_precision, _HALF_DTYPES.get(precision)
    if not mixed_precision:
        # gradients are summed in float32: 16-bit sums lose small values
        reduce_dtype = None if half is None else torch.float32
        mixed_precision = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=reduce_dtype)
    offload = options.cpu_offload
    if not isinstance(offload, OffloadPolicy):
        # copies from pinned memory do not block the host; without a GPU nothing can be pinned
        pin_memory = torch.cuda.is_available()
        offload = CPUOffloadPolicy(pin_memory=pin_memory) if offload else OffloadPolicy()
    arguments: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": options.reshard_after_forward,
        "mp_policy": mixed_precision,
        "offload_policy": offload,
    }
    # values keep the buffers alive: the id of a dead one could be reused
    seen_buffers: dict[int, torch.Tensor] = {}
    for layer in [*layers, module]:
        # allocate, broadcast and shard before the next layer, so that only one is whole in memory
        materialize(layer, device, is_filled=is_filled)
        for tensor in layer.parameters():
            if not isinstance(tensor, DTensor):  # inner layers are sharded by now
                broadcast(tensor.detach())
        for buffer in layer.buffers():
            if id(buffer) not in seen_buffers and not isinstance(buffer, DTensor):
                seen_buffers[id(buffer)] = buffer
                broadcast(buffer.detach())
        fully_shard(layer, **arguments)
    if options.find_unused_parameters:
        # unused parameters then take part in the reduction with zeros, so that ranks may use
        # different ones
        module.set_reduce_scatter_unused_params(True)  # type: ignore[operator]


def _layers_to_shard(module: nn.Module, options: FSDPStrategy) -> list[nn.Module]:
    """Return the layers to gather separately, innermost first, without the module itself."""
    selects = parse_policy(options.auto_wrap_policy, "auto_wrap_policy")
    if selects is None:
        return []
    if isinstance(selects, int):
        return [layer for layer in _layers_by_size(module, selects)[0] if layer is not module]
    selected_layers = [
        layer
        # reversed, as fully_shard must be applied to inner layers first
        for layer in reversed(list(module.modules()))
        if layer is not module and not isinstance(layer, FSDPModule) and selects(layer)
    ]
    container = next((layer for layer in selected_layers if isinstance(layer, _CONTAINERS)), None)
    if container is not None:
        raise OptionError(
            f"FSDPStrategy(auto_wrap_policy=...) means a {type(container).__qualname__}, which has "
            "no forward before which its weights could be gathered: name the layers in it."
        )
    if not selected_layers:
        class_names = sorted({type(layer).__qualname__ for layer in module.modules()})
        raise OptionError(
            f"FSDPStrategy(auto_wrap_policy={options.auto_wrap_policy!r}): no layer of "
            f"{type(module).__qualname__} is meant by it. It has {', '.join(class_names)}."
        )
    return selected_layers


def _layers_by_size(layer: nn.Module, min_parameters: int) -> tuple[list[nn.Module], int]:
    """Return the layers of at least `min_parameters`, and the number left for the parent."""
    if isinstance(layer, FSDPModule):
        return [], 0
    selected_layers: list[nn.Module] = []
    num_left = sum(parameter.numel() for parameter in layer.parameters(recurse=False))
    for child in layer.children():
        inner, remaining = _layers_by_size(child, min_parameters)
        selected_layers += inner
        num_left += remaining
    # counted without the children that are gathered themselves
    if num_left >= min_parameters and not isinstance(layer, _CONTAINERS):
        return [*selected_layers, layer], 0
    return selected_layers, num_left


def _require_own_parameters(module: nn.Module, layers: list[nn.Module]) -> None:
    """Check that no two layers which are gathered separately share a parameter."""
    owners: dict[int, tuple[nn.Module, str]] = {}
    names = {id(layer): name for name, layer in module.named_modules()}
    for layer in [*layers, module]:
        for name, parameter in _parameters_outside(layer, layers):
            owner = owners.setdefault(id(parameter), (layer, f"{names[id(layer)]}.{name}"))
            if owner[0] is not layer:
                raise ModuleError(
                    f"the parameter {owner[1].strip('.')} is {names[id(layer)]}.{name}".rstrip(".")
                    + ", too, and FSDPStrategy(auto_wrap_policy=...) gathers the two apart: a "
                    "parameter can be in one of these layers alone. Name a layer that has both, or "
                    "none of them."
                )


def _parameters_outside(
    layer: nn.Module, layers: list[nn.Module]
) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of a layer that are in no inner layer of those to gather."""
    inner_ids = {id(inner) for inner in layers if inner is not layer}
    pending = [("", layer)]
    while pending:
        prefix, part = pending.pop()
        # duplicates are kept: shared parameters are what the caller looks for
        yield from part.named_parameters(prefix, recurse=False, remove_duplicate=False)
        pending.extend(
            (f"{prefix}.{name}".lstrip("."), child)
            for name, child in part.named_children()
            if id(child) not in inner_ids and not isinstance(child, FSDPModule)
        )


def _checkpoint_activations(module: nn.Module, options: FSDPStrategy) -> None:
    """Wrap the layers that the activation checkpointing policy selects."""
    policy = options.activation_checkpointing_policy
    selects = parse_policy(policy, "activation_checkpointing_policy")
    if selects is None:
        return
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointWrapper,
        apply_activation_checkpointing,
    )

    # the layers of a module that is fitted again are wrapped already
    if any(isinstance(layer, CheckpointWrapper) for layer in module.modules()):
        return
    if isinstance(selects, int):
        selected = {
            id(layer) for layer in _layers_by_size(module, selects)[0] if layer is not module
        }
        selects = lambda layer: id(layer) in selected  # noqa: E731
    apply_activation_checkpointing(module, check_fn=selects)


class ShardedGradientSync:
    """Average the gradients of sharded weights, as `GradientSync` does those of whole ones.

    Every forward and backward gathers weights from all ranks, so no rank can skip a batch that the
    others train on.

    Args:
        module: the sharded model.
        step: runs a training batch.
        processes: the ranks.
        is_manual: whether the step itself calls backward.

    Attributes:
        is_batch_open: whether `begin` was called and `end` was not.
        has_request: returns whether this rank has a request for the others.
    """

    def __init__(
        self,
        module: Any,
        step: Callable[[Any, int], Any],
        processes: ProcessGroup,
        *,
        is_manual: bool = False,
    ) -> None:
        self.step = step
        self.is_batch_open = False
        self.has_request: Callable[[], bool] = bool
        self._module = module
        self._processes = processes
        self._watchdog = processes.watchdog
        self._is_manual = is_manual
        self._is_first = True
        self._is_synced: bool | None = None
        self._has_run = self._is_reduced = False
        self._batches_at_last_step: Any = None

    @property
    def is_request_delayed(self) -> bool:
        """Return False: the ranks exchange their requests in each window."""
        return False

    def any_rank_requests(self) -> bool:
        """Return True: whether another rank has a request is not known."""
        return True

    def backward(self, loss: Tensor) -> None:
        """Run the backward of a loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def before_backward(self, loss: Tensor) -> None:
        """Do nothing: the reduction of `fully_shard` carries no flag."""

    def refresh(self, *, is_window_open: bool) -> None:
        """Start or continue an epoch.

        Args:
            is_window_open: whether the epoch continues inside an accumulation window.
        """
        self._is_first = not is_window_open

    def begin(self, closes_window: bool) -> None:
        """Start a batch.

        Args:
            closes_window: whether the gradients are reduced in the backward of this batch.
        """
        if self._is_first:
            # fully_shard accumulates unsharded gradients outside of `.grad`, where zero_grad cannot
            # clear those of an abandoned window.
            internals.set_accumulated_gradients(self._module, {})
            self._processes.broadcast_module_buffers(self._module)
            self._is_first = False
        is_synced = closes_window or self._is_manual
        # only on a change: the call visits every layer
        if is_synced is not self._is_synced:
            self._module.set_requires_gradient_sync(is_synced)
            self._is_synced = is_synced
        self.is_batch_open, self._has_run, self._is_reduced = True, False, False
        # from here on any layer of the forward may wait for its weights
        self._watchdog.begin_computing_wait("weights or gradients")

    def finish_backward(self) -> None:
        """Record that a backward is done.

        Raises:
            OptimizationError: a parameter got no gradient.
        """
        self._watchdog.end_computing_wait()
        self._has_run, self._is_reduced = True, bool(self._is_synced)
        if self._is_synced:
            require_no_unused_parameters(self._module, "the module", "FSDPStrategy")

    def skip_batch(self, closes_window: bool, batches: int) -> None:
        """Skip a batch, which all ranks must skip.

        Args:
            closes_window: whether the batch is the last of its window.
            batches: number of batches completed before it.

        Raises:
            UsageError: the batch has begun, so that the other ranks would wait.
        """
        if self.is_batch_open or self._batches_at_last_step == batches:
            raise UsageError(
                f"StopTraining was raised in rank {self._processes.global_rank} inside a training "
                "batch, whose weights and gradients the other processes have a part in. Call "
                "trainer.stop() there, or raise it before the batch in all of them."
            )
        self.begin(closes_window)

    def end(self, closes_window: bool, has_gradients: bool, batches: int) -> bool:
        """End a batch and return whether the window has gradients.

        Args:
            closes_window: whether the batch is the last of its window.
            has_gradients: whether there are gradients.
            batches: number of batches completed before it.
        """
        self.is_batch_open = False
        self._watchdog.end_computing_wait()
        if self._is_manual:
            return has_gradients
        if not self._has_run:
            # all ranks must skip this batch. If another one did not, it waits in its forward, and
            # the watchdog ends the run
            self._processes.barrier("a batch without a loss, which FSDP has all leave out or none")
        if not closes_window:
            return has_gradients
        self._is_first, self._batches_at_last_step = True, batches
        if has_gradients and not self._is_reduced:
            # the last batch of the window was skipped, and no backward of it reduces the others
            with self._watchdog.waiting("gradients"):
                internals.reduce_accumulated_gradients(self._module)
        return has_gradients

    def prepare_manual_backward(self, loss: Tensor) -> None:
        """Do nothing: each backward that a step runs is reduced."""

    def finish_manual_backward(self) -> None:
        """Record that a backward which the step ran is done."""
        self._is_first = False
