"""Values of a name that are no numbers, such as a confusion matrix: the last ones, as they are."""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks.metrics.series import Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MOST", "Objects", "copied"]

MOST = 1000
"""Values of a name that are kept."""


def copied(value: Any) -> Any:
    """Return a value that nothing changes later."""
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


class Objects:
    """Keep the last values of a name.

    Args:
        points: what there is already.
    """

    __slots__ = ("_points",)

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points = deque(points, MOST)

    def __iter__(self) -> Iterator[Point]:
        """Yield what is kept, oldest first."""
        return iter(self._points)

    @property
    def values(self) -> list[Any]:
        """The values that are kept, oldest first."""
        return [point.value for point in self._points]

    @property
    def last(self) -> Point:
        """The last one that came."""
        return self._points[-1]

    def add(self, epoch: int, step: int, value: Any) -> None:
        """Take one more in."""
        self._points.append(Point(epoch, step, value))

    def state_dict(self) -> list[list[Any]]:
        """Return it as it is."""
        return [list(point) for point in self._points]

    @classmethod
    def of(cls, state: Iterable[Iterable[Any]]) -> Objects:
        """Return what `state_dict` was called on."""
        return cls(Point(*item) for item in state)
