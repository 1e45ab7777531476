"""MutedMetrics: takes what is logged where nothing is to become of it."""

from __future__ import annotations

from typing import Any

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning

__all__ = ["MutedMetrics"]


class MutedMetrics:
    """Stands where a `MetricStore` is in other runs, and says once that nothing is logged."""

    def __init__(self) -> None:
        self._is_told = False

    def log(self, name: str, value: Any, call: Any, batch_size: int | None) -> None:  # noqa: ARG002
        """Drop a value."""
        if not self._is_told:
            self._is_told = True
            warn(
                f"log({name!r}) was called under Trainer(barebones=True), where nothing is logged: "
                "the values are dropped, here and from now on. Leave barebones out to have them.",
                TrainerHooksWarning,
            )
