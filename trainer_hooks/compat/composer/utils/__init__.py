"""Helpers that Composer's users call by themselves."""

from __future__ import annotations

from trainer_hooks.compat.composer.core.batches import batch_get, batch_set
from trainer_hooks.compat.composer.utils import dist, reproducibility
from trainer_hooks.compat.composer.utils.names import ensure_tuple, format_name_with_dist

__all__ = [
    "batch_get",
    "batch_set",
    "dist",
    "ensure_tuple",
    "format_name_with_dist",
    "reproducibility",
]
