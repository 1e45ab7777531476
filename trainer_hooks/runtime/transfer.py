"""Move or change the tensors of a batch, whatever they are nested in."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["first_tensor", "map_tensors", "move_to_device"]


def move_to_device(batch: Any, device: torch.device) -> Any:
    """Return `batch` with its tensors, and what else has a `to(device)`, on `device`.

    Containers of any nesting are rebuilt; what holds no tensor stays as it is. Pinned host memory
    is copied without blocking.
    """

    def move(item: Any) -> Any:
        if isinstance(item, Tensor):
            return item.to(device, non_blocking=device.type == "cuda")
        return item.to(device)

    return map_tensors(batch, move, extra=lambda item: callable(getattr(item, "to", None)))


def map_tensors(
    batch: Any,
    change: Callable[[Any], Any],
    extra: Callable[[Any], bool] | None = None,
) -> Any:
    """Return `batch` with `change` applied to each tensor, and to what `extra` says is like one."""
    if isinstance(batch, Tensor) or (extra is not None and extra(batch)):
        return change(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(item, change, extra) for item in batch))
    if isinstance(batch, list | tuple):
        return type(batch)([map_tensors(item, change, extra) for item in batch])
    if isinstance(batch, defaultdict):
        changes = {key: map_tensors(value, change, extra) for key, value in batch.items()}
        return type(batch)(batch.default_factory, changes)
    if isinstance(batch, Mapping):
        changed = {key: map_tensors(value, change, extra) for key, value in batch.items()}
        return changed if type(batch) is dict else type(batch)(changed)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return dataclasses.replace(
            batch,
            **{
                field.name: map_tensors(getattr(batch, field.name), change, extra)
                for field in dataclasses.fields(batch)
                if field.init
            },
        )
    return batch


def first_tensor(batch: Any) -> Tensor | None:
    """Return the first tensor of at least one dimension found in `batch`, depth first."""
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
        found = first_tensor(item)
        if found is not None:
            return found
    return None
