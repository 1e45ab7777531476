"""Tensors of which each process has a shard: gathered, divided, and found in states."""

from __future__ import annotations

import copy
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

__all__ = [
    "Divider",
    "change_tensors",
    "divided",
    "gathered",
    "held_gradients",
    "hold_gradients",
    "plain_name",
    "taken_apart",
    "unheld",
]

Place = tuple[Any, ...]
"""Where something lies in a nesting: the keys and numbers that lead to it."""


def change_tensors(value: Any, change: Callable[[Tensor, Place], Any], place: Place = ()) -> Any:
    """Return `value` with each tensor changed; what holds none that is changed stays as it is.

    Args:
        value: dicts, lists and tuples in one another.
        change: is given a tensor and where it lies, in the same order in all processes.
        place: where `value` lies itself.
    """
    if isinstance(value, Tensor):
        return change(value, place)
    if isinstance(value, dict):
        items = {key: change_tensors(item, change, (*place, key)) for key, item in value.items()}
        if all(items[key] is item for key, item in value.items()):
            return value
        made = copy.copy(value)  # with what is attached to it, as a state_dict's versions
        made.update(items)
        return made
    if type(value) in (list, tuple):
        found = [change_tensors(item, change, (*place, n)) for n, item in enumerate(value)]
        return value if all(map(is_, found, value)) else type(value)(found)
    return value


def change_shards(value: Any, change: Callable[[DTensor, Place], Any]) -> Any:
    """Return `value` with each tensor changed that is sharded; as `change_tensors`."""

    def change_one(tensor: Tensor, place: Place) -> Any:
        return change(tensor, place) if isinstance(tensor, DTensor) else tensor

    return change_tensors(value, change_one)


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


def taken_apart(value: Any) -> tuple[Any, dict[str, list[Any]], dict[str, list[list[Any]]]]:
    """Take the sharded tensors out of a checkpoint.

    Returns:
        It with empty tensors in their places; by name this process's part of each, the shape of the
        whole and where in it the part begins; and the places of each name.
    """
    shards: dict[str, list[Any]] = {}
    places: dict[str, list[list[Any]]] = {}
    names: dict[int, str] = {}
    beginnings: dict[Any, Sequence[int]] = {}  # an optimizer's states lie as the weights do

    def take(tensor: DTensor, place: Place) -> Tensor:
        name = names.setdefault(id(tensor), ".".join(map(str, place)))
        if name not in shards:
            layout = tensor.shape, tensor.device_mesh, tensor.placements
            if layout not in beginnings:
                beginnings[layout] = compute_local_shape_and_global_offset(*layout)[1]
            shards[name] = [tensor.to_local(), list(tensor.shape), list(beginnings[layout])]
        places.setdefault(name, []).append(list(place))
        return torch.empty(0)

    with torch.no_grad():  # in which a tensor's own part is no new one
        return change_shards(value, take), shards, places


def divided(whole: Tensor, like: DTensor) -> DTensor:
    """Return this process's shard of a tensor that all processes have whole."""
    moved = whole.detach().to(like.to_local().device)
    # of what all have nothing is sent
    return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)


class Divider:
    """Makes this process's shards of a checkpoint's tensors.

    Args:
        read: fills tensors by where they belong in the checkpoint, where that has them on the
            device meta; None for one that has them all.
    """

    def __init__(self, read: Callable[[dict[Place, Tensor]], object] | None) -> None:
        self._read = read
        self._into: dict[Place, Tensor] = {}
        self._replicated: list[tuple[dict[str, Any], str, DTensor]] = []

    def weights(self, saved: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Return saved weights as the module's own are."""
        made = dict(saved)
        for name, value in saved.items():
            if name in own and isinstance(value, Tensor):
                like = own[name]
                value = value if value.is_meta else value.to(like.dtype)
                made[name] = self._like(value, like, ("state_dict", name), like.dtype)
        return made

    def optimizer_state(
        self, state: dict[str, Any], optimizer: Optimizer, place: Place
    ) -> dict[str, Any]:
        """Return an optimizer's saved state with shards of what belongs to a sharded parameter."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        made = dict(state.get("state", {}))
        for number, parameter in zip(numbers, parameters, strict=True):
            if number not in made:
                continue
            made[number] = one = dict(made[number])
            for name, value in one.items():
                if not isinstance(value, Tensor) or not value.ndim:
                    continue
                here = (*place, "state", number, name)
                if value.shape == parameter.shape:
                    one[name] = self._like(value, parameter, here, value.dtype)
                elif isinstance(parameter, DTensor):
                    one[name] = self._like(value, value, here, value.dtype)
                    self._replicated.append((one, name, parameter))
        return {**state, "state": made}

    def finish(self) -> None:
        """Read what is to be read."""
        if self._read is not None and self._into:
            self._read(self._into)
        for state, name, parameter in self._replicated:
            mesh, device = parameter.device_mesh, parameter.to_local().device
            state[name] = distribute_tensor(
                state[name].to(device), mesh, [Replicate()] * mesh.ndim, src_data_rank=None
            )

    def _like(self, value: Tensor, like: Tensor, place: Place, dtype: torch.dtype) -> Tensor:
        if value.is_meta:
            if like.is_meta:
                self._into[place] = torch.empty(like.shape, dtype=dtype)
            else:
                self._into[place] = torch.empty_like(like.detach(), dtype=dtype)
            return self._into[place]
        return divided(value, like) if isinstance(like, DTensor) else value


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
