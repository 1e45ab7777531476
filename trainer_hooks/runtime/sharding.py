"""Shard a module over processes by torch's `fully_shard`, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from trainer_hooks.errors import ModuleError, OptionError
from trainer_hooks.runtime.fsdp_strategy import chosen_by
from trainer_hooks.runtime.materializing import materialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh

    from trainer_hooks.runtime.fsdp_strategy import FSDPStrategy

__all__ = ["keep_gathered", "let_go", "shard"]

_HALVES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
_HOLDERS = (torch.nn.ModuleList, torch.nn.ModuleDict)
"""Layers without a forward, which nothing could gather."""


def shard(
    module: nn.Module,
    options: FSDPStrategy,
    mesh: DeviceMesh,
    device: torch.device,
    precision: str,
    *,
    is_filled: bool,
    share: Callable[[Tensor], object],
) -> None:
    """Shard a module in place; what of it is sharded already stays as it is.

    A module on the meta device gets its memory and its first weights here, a layer at a time, so
    that none has all of them at once.

    Args:
        module: the module.
        options: how.
        mesh: the processes over which.
        device: where this process computes.
        precision: the name of the run's precision.
        is_filled: whether a checkpoint follows that has all weights.
        share: makes a tensor of one shape in all processes the first one's, in place.

    Raises:
        ModuleError: layers that are gathered apart share a parameter, or one that is on the meta
            device cannot be given its first weights.
        OptionError: no layer is of a class that the policy names.
    """
    if isinstance(module, FSDPModule):
        materialize(module, device, is_filled=is_filled)
        return
    layers = _layers(module, options)
    _require_own_parameters(module, layers)
    _checkpoint_activations(module, options)
    arguments: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": options.reshard_after_forward,
        "mp_policy": options.mixed_precision or _mixed_precision(precision),
        "offload_policy": _offload(options.cpu_offload),
    }
    shared: dict[int, torch.Tensor] = {}  # held, so that no other one takes the number
    for layer in [*layers, module]:
        materialize(layer, device, is_filled=is_filled)
        for tensor in layer.parameters():
            if not isinstance(tensor, DTensor):  # as those of layers before are by now
                share(tensor.detach())
        for buffer in layer.buffers():
            if id(buffer) not in shared and not isinstance(buffer, DTensor):
                shared[id(buffer)] = buffer
                share(buffer.detach())
        fully_shard(layer, **arguments)
    if options.find_unused_parameters:
        module.set_reduce_scatter_unused_params(True)  # type: ignore[operator]


def keep_gathered(module: Any) -> list[tuple[Any, Any]]:
    """Gather all weights of a module and keep them; return what `let_go` needs."""
    module._get_fsdp_state()._lazy_init()  # noqa: SLF001 - as its first forward does
    kept = []
    for layer in module.modules():
        if isinstance(layer, FSDPModule):
            layer.unshard()
            for group in layer._get_fsdp_state()._fsdp_param_groups:  # noqa: SLF001
                kept.append((group, group.post_forward_mesh_info))
                # torch's own setter does not tell what there was before
                group.post_forward_mesh_info = None
    return kept


def let_go(module: nn.Module, kept: list[tuple[Any, Any]]) -> None:
    """Let go of all weights but the shards."""
    for group, info in kept:
        group.post_forward_mesh_info = info
    for layer in module.modules():
        if isinstance(layer, FSDPModule):
            layer.reshard()


def _layers(module: nn.Module, options: FSDPStrategy) -> list[nn.Module]:
    """Return the layers to gather on their own, the innermost first; without the module itself."""
    chosen = chosen_by(options.auto_wrap_policy, "auto_wrap_policy")
    if chosen is None:
        return []
    if isinstance(chosen, int):
        return [layer for layer in _of_size(module, chosen)[0] if layer is not module]
    found = [
        layer
        for layer in reversed(list(module.modules()))
        if layer is not module and not isinstance(layer, FSDPModule) and chosen(layer)
    ]
    bare = next((layer for layer in found if isinstance(layer, _HOLDERS)), None)
    if bare is not None:
        raise OptionError(
            f"FSDPStrategy(auto_wrap_policy=...) means a {type(bare).__qualname__}, which has no "
            "forward before which its weights could be gathered: name the layers in it."
        )
    if not found:
        kinds = sorted({type(layer).__qualname__ for layer in module.modules()})
        raise OptionError(
            f"FSDPStrategy(auto_wrap_policy={options.auto_wrap_policy!r}): no layer of "
            f"{type(module).__qualname__} is meant by it. It has {', '.join(kinds)}."
        )
    return found


def _of_size(layer: nn.Module, least: int) -> tuple[list[nn.Module], int]:
    """Return the layers of at least so many parameters, and how many are left to those above."""
    if isinstance(layer, FSDPModule):
        return [], 0
    found: list[nn.Module] = []
    left = sum(parameter.numel() for parameter in layer.parameters(recurse=False))
    for child in layer.children():
        inner, rest = _of_size(child, least)
        found += inner
        left += rest
    if left >= least and not isinstance(layer, _HOLDERS):
        return [*found, layer], 0
    return found, left


def _require_own_parameters(module: nn.Module, layers: list[nn.Module]) -> None:
    """Make sure that each parameter belongs to one of the layers, or to none."""
    owners: dict[int, tuple[nn.Module, str]] = {}
    names = {id(layer): name for name, layer in module.named_modules()}
    for layer in [*layers, module]:
        for name, parameter in _own(layer, layers):
            known = owners.setdefault(id(parameter), (layer, f"{names[id(layer)]}.{name}"))
            if known[0] is not layer:
                raise ModuleError(
                    f"the parameter {known[1].strip('.')} is {names[id(layer)]}.{name}".rstrip(".")
                    + ", too, and FSDPStrategy(auto_wrap_policy=...) gathers the two apart: a "
                    "parameter can be in one of these layers alone. Name a layer that has both, or "
                    "none of them."
                )


def _own(layer: nn.Module, layers: list[nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    """Give the parameters of a layer that are in no inner one of those to gather."""
    inner = {id(one) for one in layers if one is not layer}
    left = [("", layer)]
    while left:
        prefix, part = left.pop()
        yield from part.named_parameters(prefix, recurse=False, remove_duplicate=False)
        left.extend(
            (f"{prefix}.{name}".lstrip("."), child)
            for name, child in part.named_children()
            if id(child) not in inner and not isinstance(child, FSDPModule)
        )


def _checkpoint_activations(module: nn.Module, options: FSDPStrategy) -> None:
    policy = options.activation_checkpointing_policy
    chosen = chosen_by(policy, "activation_checkpointing_policy")
    if chosen is None:
        return
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointWrapper,
        apply_activation_checkpointing,
    )

    if any(isinstance(layer, CheckpointWrapper) for layer in module.modules()):
        return
    if isinstance(chosen, int):
        meant = {id(layer) for layer in _of_size(module, chosen)[0] if layer is not module}
        chosen = lambda layer: id(layer) in meant  # noqa: E731
    apply_activation_checkpointing(module, check_fn=chosen)


def _mixed_precision(precision: str) -> MixedPrecisionPolicy:
    half = _HALVES.get(precision)
    if half is None:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)


def _offload(wish: Any) -> OffloadPolicy:
    if isinstance(wish, OffloadPolicy):
        return wish
    return CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if wish else OffloadPolicy()
