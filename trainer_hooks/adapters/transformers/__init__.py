"""Adapter of callbacks of Hugging Face's transformers: `adapt` is the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.transformers.callbacks import adapt

__all__ = ["adapt"]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(__name__, {"adapt": "callbacks"})
