"""Move, convert and read the tensors of a batch, in containers of any nesting."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def move_to_device(batch: Any, device: torch.device) -> Any:
    """Return `batch` with its tensors, and other objects with a method `to`, on `device`.

    Containers of any nesting are rebuilt; objects without a tensor stay as they are. Tensors in
    pinned memory are copied without blocking.
    """

    def move(item: Any) -> Any:
        if isinstance(item, Tensor):
            return item.to(device, non_blocking=device.type == "cuda")
        return item.to(device)

    return map_tensors(batch, move, is_convertible=lambda item: callable(getattr(item, "to", None)))


def map_tensors(
    batch: Any,
    convert: Callable[[Any], Any],
    is_convertible: Callable[[Any], bool] | None = None,
) -> Any:
    """Return `batch` with `convert` applied to each tensor and each `is_convertible` object."""
    if isinstance(batch, Tensor) or (is_convertible is not None and is_convertible(batch)):
        return convert(batch)
    # a namedtuple takes its fields as separate arguments, other sequences an iterable
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(item, convert, is_convertible) for item in batch))
    if isinstance(batch, list | tuple):
        return type(batch)([map_tensors(item, convert, is_convertible) for item in batch])
    if isinstance(batch, Mapping):
        converted = {
            key: map_tensors(value, convert, is_convertible) for key, value in batch.items()
        }
        if type(batch) is dict:
            return converted
        # of any other class a copy may share its items with the batch
        if not isinstance(batch, dict | UserDict):
            return type(batch)(converted)  # type: ignore[call-arg]
        # a copy keeps a defaultdict's factory, and the encodings of a BatchEncoding
        filled: Any = copy.copy(batch)
        for key, value in converted.items():
            filled[key] = value
        return filled
    fields = field_names(batch)
    if not fields:
        return batch
    # not rebuilt from its fields, as Lightning does: `__init__` may take other arguments
    changed = copy.copy(batch)
    for name in fields:
        value = getattr(batch, name)
        converted_value = map_tensors(value, convert, is_convertible)
        if converted_value is not value:
            # past the `__setattr__` of a frozen class
            object.__setattr__(changed, name, converted_value)
    return changed


def field_names(batch: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or an attrs class's object; else nothing.

    Fields that have no value yet are left out.
    """
    kind = type(batch)
    if dataclasses.is_dataclass(kind):
        fields: Any = dataclasses.fields(kind)
    else:
        fields = getattr(kind, "__attrs_attrs__", ())  # attrs itself is not imported
    return tuple(field.name for field in fields if hasattr(batch, field.name))


def first_tensor(batch: Any) -> Tensor | None:
    """Return the first tensor in `batch` with a dimension, depth first; None without one."""
    if isinstance(batch, Tensor):
        return batch if batch.ndim else None
    for item in _items(batch):
        tensor = first_tensor(item)
        if tensor is not None:
            return tensor
    return None


def leading_sizes(batch: Any) -> tuple[int, ...]:
    """Return the size of the first dimension of each tensor in `batch` that has one."""
    if isinstance(batch, Tensor):
        return (batch.size(0),) if batch.ndim else ()
    return tuple(size for item in _items(batch) for size in leading_sizes(item))


def bytes_of(tensor: Tensor) -> Tensor:
    """Return the bytes of a dense tensor's elements in their order, as a flat tensor of uint8.

    They are copied only where the elements do not lie in memory like that.
    """
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    # a lone element counts as contiguous whatever its stride is, and torch would not view it
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def lies_on(batch: Any, device: torch.device) -> bool:
    """Return whether every tensor in `batch` is on `device` already.

    Another object with a method `to` counts as elsewhere, since it does not tell.
    """
    if isinstance(batch, Tensor):
        return batch.device == device
    if callable(getattr(batch, "to", None)):
        return False
    return all(lies_on(item, device) for item in _items(batch))


def _items(batch: Any) -> Iterable[Any]:
    """Return the values, items or fields of a container; nothing for another object."""
    if isinstance(batch, Mapping):
        return batch.values()
    if isinstance(batch, list | tuple):
        return batch
    return [getattr(batch, name) for name in field_names(batch)]
