"""Values of programs as plain data, and whether two of them are the same."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["is_same", "plain"]


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; of what it cannot hold, the class's name."""
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item) for item in value]
        return sorted(items) if isinstance(value, set | frozenset) else items
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return value.name
    return value.__name__ if isinstance(value, type) else type(value).__name__


def is_same(there: Any, here: Any, is_exact: bool = False) -> bool:
    """Return whether two plain values are the same.

    Errors are if they have a class in common. Weights must be the same bit for bit; of other
    numbers, such as means of logged values, the last digit may be summed up in another order.
    """
    if isinstance(there, dict) and isinstance(here, dict):
        if "kinds" in there and "kinds" in here:
            return bool(set(there["kinds"]) & set(here["kinds"]))
        return there.keys() == here.keys() and all(
            is_same(value, here[name], is_exact or name == "weights")
            for name, value in there.items()
        )
    if isinstance(there, list) and isinstance(here, list):
        return len(there) == len(here) and all(
            is_same(theirs, ours, is_exact) for theirs, ours in zip(there, here, strict=True)
        )
    if isinstance(there, float) and isinstance(here, float) and not is_exact:
        return math.isclose(there, here, rel_tol=1e-6)
    return bool(there == here)
