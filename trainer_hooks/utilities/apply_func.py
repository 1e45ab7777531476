"""Move what a batch consists of."""

from __future__ import annotations

from typing import Any

import torch

from trainer_hooks.runtime import move_to_device

__all__ = ["move_data_to_device"]


def move_data_to_device(batch: Any, device: str | torch.device | int) -> Any:
    """Return a batch with its tensors, and what else has a `to(device)`, on a device.

    Containers of any nesting are rebuilt; what holds no tensor stays as it is. Pinned host memory
    is copied to a GPU without blocking.

    Args:
        batch: a tensor, or any nesting of them.
        device: where to; a number is that of a GPU.
    """
    return move_to_device(batch, torch.device(device))
