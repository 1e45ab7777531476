"""The rank of this process and the number of processes, from the environment."""

from __future__ import annotations

import os

__all__ = ["get_global_rank", "get_local_rank", "get_world_size"]


def get_world_size() -> int:
    """Return the number of processes."""
    # not from torch.distributed: names are made before there is a process group
    return int(os.environ.get("WORLD_SIZE", "1"))


def get_global_rank() -> int:
    """Return the rank of this process."""
    return int(os.environ.get("RANK", "0"))


def get_local_rank() -> int:
    """Return the rank of this process on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))
