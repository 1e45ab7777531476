"""Names with places to fill in."""

from __future__ import annotations

from typing import Any

from trainer_hooks.compat.composer.utils import dist

__all__ = ["ensure_tuple", "format_name_with_dist"]


def ensure_tuple(item: Any) -> tuple[Any, ...]:
    """Return nothing for None, the items of a list or the values of a dict, and else `(item,)`."""
    if item is None:
        return ()
    if isinstance(item, dict):
        return tuple(item.values())
    if isinstance(item, list | tuple):
        return tuple(item)
    return (item,)


def format_name_with_dist(format_str: str, run_name: str, **extra: object) -> str:
    """Fill `{run_name}`, `{rank}`, `{local_rank}` and `{world_size}` in."""
    return format_str.format(
        run_name=run_name,
        rank=dist.get_global_rank(),
        local_rank=dist.get_local_rank(),
        world_size=dist.get_world_size(),
        **extra,
    )
