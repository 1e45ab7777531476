"""Adapter of Ignite's handlers: they attach to real engines, which our run drives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.ignite.handlers import IgniteAdapter, adapt, attach

__all__ = ["IgniteAdapter", "adapt", "attach"]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(__name__, {"IgniteAdapter adapt attach": "handlers"})
