"""What keeps the values of a run, under the names of pytorch-accelerated."""

from __future__ import annotations

from trainer_hooks.metrics import History

__all__ = ["InMemoryRunHistory", "RunHistory"]

RunHistory = InMemoryRunHistory = History
