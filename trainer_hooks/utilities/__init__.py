"""Helpers for code of one's own, under the names that Lightning has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.utilities.apply_func import move_data_to_device
    from trainer_hooks.utilities.combined_loader import CombinedLoader
    from trainer_hooks.utilities.grads import grad_norm
    from trainer_hooks.utilities.model_helpers import is_overridden
    from trainer_hooks.utilities.parsing import AttributeDict
    from trainer_hooks.utilities.rank_zero import (
        rank_zero_debug,
        rank_zero_deprecation,
        rank_zero_info,
        rank_zero_only,
        rank_zero_warn,
    )
    from trainer_hooks.utilities.throughput import measure_flops

__all__ = [
    "AttributeDict",
    "CombinedLoader",
    "grad_norm",
    "is_overridden",
    "measure_flops",
    "move_data_to_device",
    "rank_zero_debug",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
]

__getattr__ = loader_of(
    __name__,
    {
        "AttributeDict": "parsing",
        "CombinedLoader": "combined_loader",
        "grad_norm": "grads",
        "is_overridden": "model_helpers",
        "measure_flops": "throughput",
        "move_data_to_device": "apply_func",
        "rank_zero_debug": "rank_zero",
        "rank_zero_deprecation": "rank_zero",
        "rank_zero_info": "rank_zero",
        "rank_zero_only": "rank_zero",
        "rank_zero_warn": "rank_zero",
    },
)


def __dir__() -> list[str]:
    return __all__
