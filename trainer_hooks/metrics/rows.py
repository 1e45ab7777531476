"""The memory that logged values are copied into: made once, written to at each call."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["CHUNK", "cells_of", "folded", "new_rows", "row_type", "widest"]

CHUNK = 64
"""Values that are collected and then reduced together: one reduction, not many additions."""


def new_rows(dtype: torch.dtype, device: torch.device, count: int = CHUNK) -> Tensor:
    """Return memory for `count` values that can be written to in inference mode and outside."""
    with torch.inference_mode(mode=False), torch.no_grad():
        return torch.zeros(count, dtype=dtype, device=device)


def cells_of(rows: Tensor) -> tuple[Tensor, ...]:
    """Return a 0-dim view of each place."""
    with torch.inference_mode(mode=False), torch.no_grad():
        return rows.unbind()


def row_type(value: Tensor) -> torch.dtype:
    """Return the type to keep a value in, which loses nothing of it but of large integers on MPS.

    Narrow floating-point types are kept in 32 bits, all others that are none in 64.
    """
    if value.dtype in (torch.float32, torch.float16, torch.bfloat16):
        return torch.float32
    return widest(value.device)


def widest(device: torch.device) -> torch.dtype:
    """Return the floating-point type to reduce in; MPS has no 64 bits."""
    return torch.float32 if device.type == "mps" else torch.float64


def folded(kind: str, rows: Tensor, weights: list[int]) -> Tensor:
    """Return the values of an epoch as one: their sum, weighted for a mean, least or greatest.

    It is made in 64 bits without a copy of the values in that type.
    """
    if kind == "min":
        return rows.min()
    if kind == "max":
        return rows.max()
    wide = widest(rows.device)
    if kind == "sum":
        return rows.sum(dtype=wide)
    first = weights[0]
    if weights.count(first) == len(weights):
        return rows.sum(dtype=wide) * first
    return (rows * torch.tensor(weights, dtype=wide, device=rows.device)).sum()
