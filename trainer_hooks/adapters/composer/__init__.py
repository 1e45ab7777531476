"""Callbacks of MosaicML Composer in a Trainer: the entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.composer.adapting import adapt, refuse_algorithm

__all__ = ["adapt", "refuse_algorithm"]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(__name__, {"adapt": "adapting", "refuse_algorithm": "adapting"})
