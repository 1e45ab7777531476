"""Tensors of which each process has a shard: gathered, divided, and found in states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn
    from torch.optim import Optimizer

__all__ = [
    "change_shards",
    "divided",
    "gathered",
    "held_gradients",
    "hold_gradients",
    "plain_name",
    "spread_optimizer_state",
    "unheld",
]

Place = tuple[Any, ...]
"""Where something lies in a nesting: the keys and numbers that lead to it."""


def change_shards(value: Any, change: Callable[[DTensor, Place], Any], place: Place = ()) -> Any:
    """Return `value` with each tensor that is sharded changed; what holds none stays as it is.

    Args:
        value: dicts, lists and tuples in one another.
        change: is given such a tensor and where it lies, in the same order in all processes.
        place: where `value` lies itself.
    """
    if isinstance(value, DTensor):
        return change(value, place)
    if isinstance(value, dict):
        items = {key: change_shards(item, change, (*place, key)) for key, item in value.items()}
        if all(items[key] is item for key, item in value.items()):
            return value
        made = type(value)() if type(value) is not dict else {}
        made.update(items)
        vars_of = getattr(value, "__dict__", None)
        if vars_of:  # a state_dict has its modules' versions as an attribute
            made.__dict__.update(vars_of)
        return made
    if type(value) in (list, tuple):
        found = [change_shards(item, change, (*place, n)) for n, item in enumerate(value)]
        return value if all(map(lambda a, b: a is b, found, value)) else type(value)(found)
    return value


def gathered(value: Any, *, keeps: bool) -> Any:
    """Return `value` with its sharded tensors whole and on the host; all processes must call it.

    Args:
        value: dicts, lists and tuples in one another.
        keeps: whether this process needs them; if not, empty tensors stand in their places.
    """
    known: dict[int, Tensor] = {}

    def gather(tensor: DTensor, _: Place) -> Tensor:
        if id(tensor) not in known:  # what is shared stays shared
            whole = tensor.full_tensor()
            if not keeps:
                whole = torch.empty(0)
            elif whole.device.type != "cpu" or whole.data_ptr() == tensor.to_local().data_ptr():
                whole = whole.detach().to("cpu", copy=True)
            known[id(tensor)] = whole.detach()
        return known[id(tensor)]

    return change_shards(value, gather)


def divided(whole: Tensor, like: DTensor) -> DTensor:
    """Return this process's shard of a tensor that all processes have whole."""
    moved = whole.detach().to(like.to_local().device)
    # of what all have nothing is sent
    return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)


def spread_optimizer_state(state: dict[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer's saved state with shards of what belongs to a sharded parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    made = dict(state.get("state", {}))
    for number, parameter in zip(numbers, parameters, strict=True):
        if number in made and isinstance(parameter, DTensor):
            made[number] = {
                name: _as_state(value, parameter) for name, value in made[number].items()
            }
    return {**state, "state": made}


def _as_state(value: Any, parameter: DTensor) -> Any:
    if not isinstance(value, Tensor) or isinstance(value, DTensor) or not value.ndim:
        return value
    if value.shape == parameter.shape:
        return divided(value, parameter)
    mesh = parameter.device_mesh
    whole = value.to(parameter.to_local().device)
    return distribute_tensor(whole, mesh, [Replicate()] * mesh.ndim, src_data_rank=None)


def plain_name(name: str) -> str:
    """Return a parameter's name as it stands in checkpoints, without what wraps its layer."""
    return name.replace("_checkpoint_wrapped_module.", "")


def held_gradients(module: nn.Module) -> dict[str, Tensor]:
    """Return, by name, the gradients that a window holds back until its end, each of them whole."""
    found = {}
    for name, held in _held(module):
        gradient = held.unsharded_accumulated_grad
        if gradient is None and hasattr(held, "_unsharded_param"):
            gradient = held._unsharded_param.grad  # noqa: SLF001 - torch tells it nowhere else
        if gradient is not None:
            found[name] = gradient
    return found


def hold_gradients(module: nn.Module, gradients: Mapping[str, Tensor]) -> None:
    """Take gradients back that a window holds until its end."""
    for name, held in _held(module):
        unheld(held)
        if name in gradients:
            device = held.sharded_param.to_local().device
            held.unsharded_accumulated_grad = gradients[name].detach().clone().to(device)


def unheld(held: Any) -> None:
    """Let go of the gradient that a parameter holds back."""
    held.unsharded_accumulated_grad = None
    if hasattr(held, "_unsharded_param"):
        held._unsharded_param.grad = None  # noqa: SLF001 - torch tells it nowhere else


def _held(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Give what torch keeps of each sharded parameter, with the parameter's name."""
    names = {id(parameter): plain_name(name) for name, parameter in module.named_parameters()}
    for layer in module.modules():
        if isinstance(layer, FSDPModule):
            state = layer._get_fsdp_state()  # noqa: SLF001 - there is no public way to it
            for group in state._fsdp_param_groups:  # noqa: SLF001
                for held in group.fsdp_params:
                    name = names.get(id(held.sharded_param))
                    if name is None:  # while it is gathered the whole one stands in its place
                        name = names[id(held._unsharded_param)]  # noqa: SLF001
                    yield name, held
