"""The gathering of tensors from all ranks, as `gather` of pytorch-accelerated's Trainer does it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainer_hooks.runtime.nested_tensors import map_tensors


def gather_rows(ranks: Any, tensors: Any, padding_value: float | None) -> Any:
    """Return the rows of all ranks, those of a rank below those of the one before it.

    Args:
        ranks: the trainer's `strategy`.
        tensors: a tensor of shape (rows, ...), or a nesting of such; ranks may differ in rows.
        padding_value: rows that hold this value alone are left out; None to leave out none.
    """

    def gather(tensor: Tensor) -> Tensor:
        if ranks.world_size > 1:
            # a number becomes a row; as objects, the parts may differ in their number of rows
            rows = tensor.detach().cpu()
            parts = ranks.gather(rows if rows.ndim else rows[None])
            tensor = torch.cat(parts).to(tensor.device)
        return tensor if padding_value is None else remove_padding(tensor, padding_value)

    return map_tensors(tensors, gather)


def remove_padding(padded_tensor: Tensor, pad_value: float) -> Tensor:
    """Return a tensor without the rows that hold padding alone.

    Args:
        padded_tensor: rows, of any further dimensions.
        pad_value: the value of padding.
    """
    is_padding = (padded_tensor == pad_value).flatten(1).all(1) if padded_tensor.ndim > 1 else (
        padded_tensor == pad_value
    )  # fmt: skip
    return padded_tensor[~is_padding]
