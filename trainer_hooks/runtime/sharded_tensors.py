"""Gather, shard and find sharded tensors (DTensors) in nested state."""

from __future__ import annotations

import copy
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from trainer_hooks.runtime.parameter_names import plain_name, with_plain_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.optim import Optimizer

Path = tuple[Any, ...]
"""Path of a tensor in nested containers: the keys and indices that lead to it."""


def map_nested_tensors(value: Any, change: Callable[[Tensor, Path], Any], path: Path = ()) -> Any:
    """Return `value` with `change` applied to each tensor; containers without a change are kept.

    Args:
        value: nested dicts, lists and tuples.
        change: gets a tensor and its path, in the same order on all ranks.
        path: path of `value` itself.
    """
    if isinstance(value, Tensor):
        return change(value, path)
    if isinstance(value, dict):
        items = {key: map_nested_tensors(item, change, (*path, key)) for key, item in value.items()}
        if all(items[key] is item for key, item in value.items()):
            return value
        # a state_dict carries `_metadata` as an attribute, which a dict comprehension would lose
        result = copy.copy(value)
        result.update(items)
        return result
    if type(value) in (list, tuple):
        mapped = [map_nested_tensors(item, change, (*path, n)) for n, item in enumerate(value)]
        return value if all(map(is_, mapped, value)) else type(value)(mapped)
    return value


def map_sharded_tensors(value: Any, change: Callable[[DTensor, Path], Any]) -> Any:
    """Return `value` with `change` applied to each sharded tensor; see `map_nested_tensors`."""

    def change_one(tensor: Tensor, path: Path) -> Any:
        return change(tensor, path) if isinstance(tensor, DTensor) else tensor

    return map_nested_tensors(value, change_one)


def gather_shards(value: Any, *, keep_result: bool) -> Any:
    """Return `value` with its sharded tensors unsharded on the host; a collective call.

    Args:
        value: nested dicts, lists and tuples.
        keep_result: whether this rank needs the tensors; if not, it gets empty ones.
    """
    gathered: dict[int, Tensor] = {}

    def gather(tensor: DTensor, _: Path) -> Tensor:
        if id(tensor) not in gathered:  # shared tensors stay shared
            # a collective, which ranks that drop the result must call as well
            whole = tensor.full_tensor()
            if not keep_result:
                whole = torch.empty(0)
            # on a mesh of one rank `full_tensor` may return the shard itself, which training goes
            # on to change
            elif whole.device.type != "cpu" or whole.data_ptr() == tensor.to_local().data_ptr():
                whole = whole.detach().to("cpu", copy=True)
            gathered[id(tensor)] = whole.detach()
        return gathered[id(tensor)]

    return map_sharded_tensors(value, gather)


def extract_shards(value: Any) -> tuple[Any, dict[str, list[Any]], dict[str, list[list[Any]]]]:
    """Take the sharded tensors out of a checkpoint.

    Returns:
        The checkpoint with empty tensors in their place; by name this rank's shard of each, its
        global shape and the offset of the shard; and the paths of each name.
    """
    shards: dict[str, list[Any]] = {}
    paths: dict[str, list[list[Any]]] = {}
    names: dict[int, str] = {}
    # optimizer states have the layout of their weights, so each layout is computed once
    offsets: dict[Any, Sequence[int]] = {}

    def extract(tensor: DTensor, path: Path) -> Tensor:
        name = names.setdefault(id(tensor), ".".join(map(str, path)))
        if name not in shards:
            layout = tensor.shape, tensor.device_mesh, tensor.placements
            if layout not in offsets:
                offsets[layout] = compute_local_shape_and_global_offset(*layout)[1]
            shards[name] = [tensor.to_local(), list(tensor.shape), list(offsets[layout])]
        paths.setdefault(name, []).append(list(path))
        return torch.empty(0)

    # without grad mode, `to_local` returns the shard itself and not an autograd view of it
    with torch.no_grad():
        return map_sharded_tensors(value, extract), shards, paths


def take_shard(whole: Tensor, reference: DTensor) -> DTensor:
    """Return this rank's shard of a tensor that all ranks hold unsharded."""
    moved = whole.detach().to(reference.to_local().device)
    # `src_data_rank=None`: all ranks hold the values, so nothing is sent.
    return distribute_tensor(moved, reference.device_mesh, reference.placements, src_data_rank=None)


class CheckpointSharder:
    """Compute this rank's shards of the tensors in a checkpoint.

    Args:
        read: fills tensors by their path in the checkpoint, if the checkpoint has them on the meta
            device; None if it has all values.
    """

    def __init__(self, read: Callable[[dict[Path, Tensor]], object] | None) -> None:
        self._read = read
        self._to_read: dict[Path, Tensor] = {}
        self._replicated: list[tuple[dict[str, Any], str, DTensor]] = []

    def weights(self, saved: Mapping[str, Any], module_state: Mapping[str, Any]) -> dict[str, Any]:
        """Return saved weights, sharded like the module's own."""
        result = dict(saved)
        references = with_plain_names(module_state)
        for name, value in saved.items():
            reference = references.get(plain_name(name))
            if reference is not None and isinstance(value, Tensor):
                value = value if value.is_meta else value.to(reference.dtype)
                result[name] = self._shard_like(
                    value, reference, ("state_dict", name), reference.dtype
                )
        return result

    def optimizer_state(
        self, state: dict[str, Any], optimizer: Optimizer, path: Path
    ) -> dict[str, Any]:
        """Return an optimizer's saved state, sharded like the parameters it belongs to."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        # a saved state knows parameters by number, in the order of the groups
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        result = dict(state.get("state", {}))
        for number, parameter in zip(numbers, parameters, strict=True):
            if number not in result:
                continue
            # copied, because the caller's checkpoint must stay as it was read
            result[number] = parameter_state = dict(result[number])
            for name, value in parameter_state.items():
                if not isinstance(value, Tensor) or not value.ndim:
                    continue
                tensor_path = (*path, "state", number, name)
                if value.shape == parameter.shape:
                    parameter_state[name] = self._shard_like(
                        value, parameter, tensor_path, value.dtype
                    )
                # of another shape, as Adafactor's row and column means: whole on every rank
                elif isinstance(parameter, DTensor):
                    parameter_state[name] = self._shard_like(value, value, tensor_path, value.dtype)
                    self._replicated.append((parameter_state, name, parameter))
        return {**state, "state": result}

    def finish(self) -> None:
        """Read the tensors that were requested, and replicate those that are not sharded."""
        if self._read is not None and self._to_read:
            self._read(self._to_read)
        for state, name, parameter in self._replicated:
            mesh, device = parameter.device_mesh, parameter.to_local().device
            state[name] = distribute_tensor(
                state[name].to(device), mesh, [Replicate()] * mesh.ndim, src_data_rank=None
            )

    def _shard_like(
        self, value: Tensor, reference: Tensor, path: Path, dtype: torch.dtype
    ) -> Tensor:
        """Return this rank's shard of a saved tensor, or a tensor that `finish` fills with it."""
        if value.is_meta:
            if reference.is_meta:
                self._to_read[path] = torch.empty(reference.shape, dtype=dtype)
            else:
                self._to_read[path] = torch.empty_like(reference.detach(), dtype=dtype)
            return self._to_read[path]
        return take_shard(value, reference) if isinstance(reference, DTensor) else value
