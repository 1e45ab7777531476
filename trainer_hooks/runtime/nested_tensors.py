"""Move or convert the tensors of a batch, in containers of any nesting."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
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
    # A namedtuple takes its fields as separate arguments, other sequences an iterable.
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(item, convert, is_convertible) for item in batch))
    if isinstance(batch, list | tuple):
        return type(batch)([map_tensors(item, convert, is_convertible) for item in batch])
    if isinstance(batch, Mapping):
        converted = {
            key: map_tensors(value, convert, is_convertible) for key, value in batch.items()
        }
        # Its constructor takes the factory before the items.
        if isinstance(batch, defaultdict):
            return type(batch)(batch.default_factory, converted)
        return converted if type(batch) is dict else type(batch)(converted)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return dataclasses.replace(
            batch,
            **{
                field.name: map_tensors(getattr(batch, field.name), convert, is_convertible)
                for field in dataclasses.fields(batch)
                # dataclasses.replace refuses fields that __init__ does not take.
                if field.init
            },
        )
    return batch


def first_tensor(batch: Any) -> Tensor | None:
    """Return the first tensor in `batch` with a dimension, depth first; None without one."""
    if isinstance(batch, Tensor):
        return batch if batch.ndim else None
    items: Any = ()
    if isinstance(batch, Mapping):
        items = batch.values()
    elif isinstance(batch, list | tuple):
        items = batch
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        items = vars(batch).values()
    for item in items:
        tensor = first_tensor(item)
        if tensor is not None:
            return tensor
    return None
