"""Memory of a device: tell that it ran out, and give back what is not in use."""

from __future__ import annotations

import gc

import torch

from trainer_hooks.errors import message_of

__all__ = ["free_memory", "is_out_of_memory"]

_SIGNS = (
    "out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDNN_STATUS_NOT_SUPPORTED",  # what cuDNN says where its workspace finds no place
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there is no memory left, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in message_of(error) for sign in _SIGNS)


def free_memory() -> None:
    """Collect what nobody refers to any more, and return the allocators' free blocks."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
