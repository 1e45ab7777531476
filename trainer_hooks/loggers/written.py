"""Written: what a run that goes on has been given already, so that it is not given twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Written"]


class Written:
    """Metrics by name and step.

    Args:
        pairs: names and steps of those that the run has.
    """

    def __init__(self, pairs: Iterable[tuple[str, int]] = ()) -> None:
        self._pairs = set(pairs)
        self._last = max((step for _, step in self._pairs), default=-1)

    def without(self, metrics: Mapping[str, float], step: int) -> dict[str, float]:
        """Return the metrics that the run has no value of at this step."""
        if step > self._last:
            return dict(metrics)
        return {key: value for key, value in metrics.items() if (key, step) not in self._pairs}
