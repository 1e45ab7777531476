"""Copies to a GPU beside what it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.runtime.transfer import map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CopyStream"]


class CopyStream:
    """Let batches go to a GPU while it still computes with the one before.

    The host asks for a batch as soon as it has handed over the step before, with which the GPU is
    still busy. On the stream of that step the copy would come after it; on one of its own it goes
    beside it, and a copy from memory that is not pinned does not wait for it either. What is then
    computed with the batch waits for the copy, on the GPU alone.

    Args:
        device: a GPU.
        cuda: what has the streams: `torch.cuda`.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._stream = cuda.Stream(device)

    def __call__(self, move: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `move` returns, whose work is done on the stream of its own."""
        computing = self._cuda.current_stream(self._device)
        with self._cuda.stream(self._stream):
            moved = move(*arguments)
        computing.wait_stream(self._stream)

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.device.type == self._device.type:
                tensor.record_stream(computing)  # its memory is not given away before that is done
            return tensor

        map_tensors(moved, keep)
        return moved
