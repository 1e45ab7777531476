"""Helpers that Composer's users call by themselves."""

from __future__ import annotations

from trainer_hooks.compat.composer.utils import dist, reproducibility
from trainer_hooks.compat.composer.utils.helpers import (
    batch_get,
    batch_set,
    ensure_tuple,
    format_name_with_dist,
)

__all__ = [
    "batch_get",
    "batch_set",
    "dist",
    "ensure_tuple",
    "format_name_with_dist",
    "reproducibility",
]
