"""Callbacks, models and logger destinations of MosaicML Composer in a Trainer: the entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.composer.adapting import adapt, refuse_algorithm
    from trainer_hooks.adapters.composer.losses import losses_of, mean_of
    from trainer_hooks.adapters.composer.modules import adapt_module

__all__ = ["adapt", "adapt_module", "losses_of", "mean_of", "refuse_algorithm"]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "adapt": "adapting",
            "adapt_module": "modules",
            "losses_of": "losses",
            "mean_of": "losses",
            "refuse_algorithm": "adapting",
        },
    )
