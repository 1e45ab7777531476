"""Modules whose class `fully_shard` has replaced."""

from __future__ import annotations

from typing import Any

from trainer_hooks._lazy import class_if_loaded

__all__ = ["own_class"]


def own_class(module: object) -> type:
    """Return a module's class: the one that it was made of, if its weights are sharded."""
    sharded: Any = class_if_loaded("torch.distributed.fsdp", "FSDPModule")
    return next(kind for kind in type(module).__mro__ if not issubclass(kind, sharded))
