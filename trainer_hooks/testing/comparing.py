"""Compare nested values bit for bit, and say where they differ."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

__all__ = ["differences", "listed"]

_SHOWN = 4


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Return the places where two nested values differ, each with both values."""
    if type(first) is not type(second):
        return [f"{path}: {first!r} and {second!r}"]
    if isinstance(first, Tensor):
        return [] if _are_equal(first, second) else [f"{path}: {_apart(first, second)}"]
    if isinstance(first, dict):
        found = []
        for key in dict.fromkeys((*first, *second)):
            place = f"{path}[{key!r}]"
            if key not in first or key not in second:
                where = "the first" if key in first else "the second"
                found.append(f"{place}: only in {where}, {first.get(key, second.get(key))!r}")
            else:
                found += differences(first[key], second[key], place)
        return found
    if type(first).__module__ == "numpy":  # whether two arrays are equal is an array
        forms = [(item.dtype, item.shape, item.tobytes()) for item in (first, second)]
        return [] if forms[0] == forms[1] else [f"{path}: {first!r} and {second!r}"]
    if isinstance(first, list | tuple | deque) and len(first) == len(second):
        found = []
        for index, pair in enumerate(zip(first, second, strict=True)):
            found += differences(*pair, f"{path}[{index}]")
        return found
    is_same = first == second or (first != first and second != second)
    return [] if is_same else [f"{path}: {first!r} and {second!r}"]


def listed(found: list[str]) -> str:
    """Return the first few differences in one line."""
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _are_equal(first: Tensor, second: Tensor) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    return torch.equal(first.isnan(), second.isnan()) and torch.equal(
        first.nan_to_num(), second.nan_to_num()
    )


def _apart(first: Tensor, second: Tensor) -> str:
    """Return both tensors, and by how much they differ where printing them would not show it."""
    shown = f"{first} and {second}"
    if str(first) == str(second):
        shown += f", up to {(first - second).abs().max().item():.3g} apart"
    return shown
