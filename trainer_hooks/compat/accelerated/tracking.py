"""The history of logged values, under pytorch-accelerated's names for it."""

from __future__ import annotations

from trainer_hooks.metrics.history import History

__all__ = ["InMemoryRunHistory", "RunHistory"]

RunHistory = InMemoryRunHistory = History
