"""Helpers that Composer's users call by themselves; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from trainer_hooks.callbacks import export_for_inference
    from trainer_hooks.compat.composer.core.event import StringEnum
    from trainer_hooks.compat.composer.utils import dist, reproducibility
    from trainer_hooks.compat.composer.utils.helpers import (
        batch_get,
        batch_set,
        ensure_tuple,
        format_name_with_dist,
        get_free_tcp_port,
        is_notebook,
        map_collection,
        model_eval_mode,
        parse_uri,
    )

__all__ = [
    "StringEnum",
    "batch_get",
    "batch_set",
    "dist",
    "ensure_tuple",
    "export_for_inference",
    "format_name_with_dist",
    "get_free_tcp_port",
    "is_notebook",
    "map_collection",
    "model_eval_mode",
    "parse_uri",
    "reproducibility",
]

__getattr__ = package_getattr(__name__)


def __dir__() -> list[str]:
    return __all__
