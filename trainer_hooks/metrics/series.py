"""One name's values over a run, in bounded memory."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LIMIT", "Point", "Series"]

LIMIT = 10_000
"""Points of a name that are kept at most, beside the last one."""


class Point(NamedTuple):
    """A value and where in the run it was logged: the epoch, from 0 on, and the x axis' place."""

    epoch: int
    step: int
    value: Any


class Series:
    """Keep values: all while there are few, evenly spread ones later, and always the last.

    When `LIMIT` of them are held every second one is dropped, and from then on every second of
    those that come is kept; and so on. What is kept depends on how many came and on nothing else.

    Attributes:
        count: how many came.
        stride: every how many of them is kept.
    """

    __slots__ = ("_epochs", "_last", "_steps", "_values", "count", "stride")

    def __init__(self) -> None:
        self._epochs, self._steps, self._values = array("q"), array("q"), array("d")
        self._last: Point | None = None
        self.count = 0
        self.stride = 1

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._values) + self._holds_last_apart

    def __iter__(self) -> Iterator[Point]:
        """Yield what is kept, oldest first."""
        yield from map(Point, self._epochs, self._steps, self._values)
        if self._last is not None and self._holds_last_apart:
            yield self._last

    @property
    def values(self) -> list[float]:
        """The values that are kept, oldest first."""
        last = [self._last.value] if self._last is not None and self._holds_last_apart else []
        return self._values.tolist() + last

    @property
    def last(self) -> Point | None:
        """The last one that came."""
        return self._last

    def add(self, epoch: int, step: int, value: float) -> None:
        """Take one more in."""
        if self.count % self.stride == 0:
            self._epochs.append(epoch)
            self._steps.append(step)
            self._values.append(value)
            if len(self._values) == LIMIT:
                for column in (self._epochs, self._steps, self._values):
                    del column[1::2]
                self.stride *= 2
        self._last = Point(epoch, step, value)
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain data; the columns are little-endian, of 64 bits each."""
        return {
            "epochs": _bytes(self._epochs),
            "steps": _bytes(self._steps),
            "values": _bytes(self._values),
            "last": None if self._last is None else list(self._last),
            "count": self.count,
            "stride": self.stride,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._epochs = _array("q", state_dict["epochs"])
        self._steps = _array("q", state_dict["steps"])
        self._values = _array("d", state_dict["values"])
        self._last = None if state_dict["last"] is None else Point(*state_dict["last"])
        self.count = state_dict["count"]
        self.stride = state_dict["stride"]

    @property
    def _holds_last_apart(self) -> bool:
        """Whether the last one is not among those that the stride keeps, or was dropped."""
        return self.count > 0 and (self.count - 1) % self.stride != 0


def _bytes(column: array[Any]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _array(typecode: str, data: bytes) -> array[Any]:
    column = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
