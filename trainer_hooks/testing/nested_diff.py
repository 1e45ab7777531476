"""Compare nested values bit for bit and list the paths at which they differ."""

# `torch.testing.assert_close(rtol=0, atol=0, equal_nan=True)` would compare the tensors, but a
# callback's state also holds texts, sets, deques and dates, which it refuses; it takes an int for a
# float of the same value; and it stops at the first difference, where a report lists the first few.

from __future__ import annotations

import math
from collections import deque
from typing import Any

import torch
from torch import Tensor

from trainer_hooks._text import first_few

_MAX_SHOWN = 4


def nested_differences(first: Any, second: Any, path: str = "") -> list[str]:
    """List the differences of two nested values, each with its path and both values.

    Two NaNs are equal. Values of different types are different, as 1 and 1.0 are.

    Args:
        first: dicts, lists, tuples and deques of tensors, arrays and plain data.
        second: the value to compare with.
        path: the name of the values, put before every key and index.
    """
    # a state that comes back as another type breaks code that calls its methods
    if type(first) is not type(second):
        return [f"{path}: {first!r} and {second!r}"]
    if isinstance(first, Tensor):
        return [] if _are_equal(first, second) else [f"{path}: {_both_tensors(first, second)}"]
    if isinstance(first, dict):
        differences = []
        for key in dict.fromkeys((*first, *second)):
            item_path = f"{path}[{key!r}]"
            if key not in first or key not in second:
                side = "the first" if key in first else "the second"
                only = first.get(key, second.get(key))
                differences.append(f"{item_path}: only in {side}, {only!r}")
            else:
                differences += nested_differences(first[key], second[key], item_path)
        return differences
    if type(first).__module__ == "numpy":
        # by bytes, since `==` of two arrays is an array, which has no truth value
        contents = [(item.dtype, item.shape, item.tobytes()) for item in (first, second)]
        return [] if contents[0] == contents[1] else [f"{path}: {first!r} and {second!r}"]
    if isinstance(first, list | tuple | deque) and len(first) == len(second):
        differences = []
        for index, pair in enumerate(zip(first, second, strict=True)):
            differences += nested_differences(*pair, f"{path}[{index}]")
        return differences
    # NaN is the one value that is not equal to itself
    is_same = first == second or (first != first and second != second)
    return [] if is_same else [f"{path}: {first!r} and {second!r}"]


def summarize_differences(differences: list[str]) -> str:
    """Join the first few differences into one line, with the number of the others."""
    return first_few(differences, _MAX_SHOWN, "; ")


def _are_equal(first: Tensor, second: Tensor) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    # torch.equal takes two NaNs for different, so they are compared by their positions
    return torch.equal(first.isnan(), second.isnan()) and torch.equal(
        first.nan_to_num(0.0, math.inf, -math.inf), second.nan_to_num(0.0, math.inf, -math.inf)
    )


def _both_tensors(first: Tensor, second: Tensor) -> str:
    """Print two tensors, with their largest distance if they print alike."""
    text = f"{first} and {second}"
    # torch prints four digits, so a difference in the last bit would not be seen
    # it also leaves out the middle of a long one; torch does not subtract bools
    if str(first) == str(second) and first.dtype is not torch.bool:
        text += f", up to {(first - second).abs().max().item():.3g} apart"
    return text
