"""Adapters of Lightning's callbacks, modules, data modules and loggers: the entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.lightning.callbacks import adapt
    from trainer_hooks.adapters.lightning.loggers import adapt_logger
    from trainer_hooks.adapters.lightning.modules import adapt_datamodule, adapt_module

__all__ = ["adapt", "adapt_datamodule", "adapt_logger", "adapt_module"]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "adapt": "callbacks",
            "adapt_datamodule adapt_module": "modules",
            "adapt_logger": "loggers",
        },
    )
