"""The adapters of MosaicML Composer's callbacks, models and logger destinations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.composer.callbacks import adapt, refuse_algorithm
    from trainer_hooks.adapters.composer.modules import adapt_module, losses_of, mean_of

__all__ = ["adapt", "adapt_module", "losses_of", "mean_of", "refuse_algorithm"]

if not TYPE_CHECKING:  # so that an unknown name is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {"adapt refuse_algorithm": "callbacks", "adapt_module losses_of mean_of": "modules"},
    )
