"""Deprecated names of helpers that are in `trainer_hooks.compat.lightning.utilities` now."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import register_module
from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.compat.lightning.utilities import (
        AttributeDict,
        CombinedLoader,
        grad_norm,
        is_overridden,
        measure_flops,
        move_data_to_device,
        rank_zero_deprecation,
        rank_zero_info,
        rank_zero_only,
        rank_zero_warn,
    )
    from trainer_hooks.compat.lightning.utilities.rank_zero import rank_zero_debug

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

_NEW = "trainer_hooks.compat.lightning.utilities"

_MODULES = {
    "apply_func": ["move_data_to_device"],
    "combined_loader": ["CombinedLoader"],
    "grads": ["grad_norm"],
    "model_helpers": ["is_overridden"],
    "parsing": ["AttributeDict"],
    "rank_zero": [name for name in __all__ if name.startswith("rank_zero_")],
    "throughput": ["measure_flops"],
}
"""The modules that were files here, and their names."""


def _load(module: str, names: list[str], name: str) -> Any:
    """Return a name from its new module, and warn of the old one."""
    if module == __name__ and name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    home = f"{_NEW}.rank_zero" if name == "rank_zero_debug" else _NEW
    # asked for a name and not for the module, so that `from trainer_hooks import *` does not warn
    warn(
        f"{module}.{name} has moved. Write `from {home} import {name}`.",
        TrainerHooksWarning,
    )
    return getattr(import_module(home), name)


for _module, _names in _MODULES.items():
    register_module(
        f"{__name__}.{_module}",
        f"Deprecated names of helpers that are in `{_NEW}` now.",
        _names,
        partial(_load, f"{__name__}.{_module}", _names),
    )

__getattr__ = partial(_load, __name__, __all__)


def __dir__() -> list[str]:
    return __all__
