"""When a progress bar is drawn, and what is written where there is no terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING

from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Pace", "Phase", "PlainLines", "clock", "format_metrics", "whole_number"]

_ON_TERMINAL = 0.1
_IN_LOG = 10.0


class Phase(StrEnum):
    """What a bar counts."""

    SANITY = "sanity"
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    PREDICT = "predict"


class Pace:
    """Decide after each batch, in a fraction of a microsecond, whether to draw.

    Attributes:
        count: batches done.
        drawn: batches done when something was drawn last.
    """

    __slots__ = ("_due", "_every", "_interval", "_last", "count", "drawn")

    def __init__(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Let nothing be due any more."""
        self._due = math.inf
        self._every = 1
        self._interval = 0.0
        self._last = -1
        self.count = self.drawn = 0

    def start(self, count: int, total: int | None, every: int, is_terminal: bool) -> None:
        """Begin to count towards `total`.

        On a terminal something is due when 0.1 s have passed and `count` is a multiple of `every`,
        and at the last batch. In a log it is due when 10 s have passed.
        """
        if self._due == math.inf:
            self._due = monotonic() + (0.0 if is_terminal else _IN_LOG)
        self._interval = _ON_TERMINAL if is_terminal else _IN_LOG
        self._every = every
        self._last = -1 if total is None or not is_terminal else total
        self.count = self.drawn = count

    def is_due(self, count: int) -> bool:
        """Note that `count` batches are done; return whether to draw."""
        self.count = count
        return count == self._last or (not count % self._every and monotonic() >= self._due)

    @property
    def is_time(self) -> bool:
        """Whether enough time has passed since something was drawn."""
        return monotonic() >= self._due

    def note_drawing(self) -> None:
        """Note that something was drawn."""
        self.drawn = self.count
        self._due = monotonic() + self._interval


@dataclass(slots=True)
class _Count:
    description: str
    total: int | None
    started: float


class PlainLines:
    """Stand in for a bar where lines cannot be drawn over: write a line now and then."""

    def __init__(self) -> None:
        self._counts: dict[Phase, _Count] = {}

    def open_bar(self, phase: Phase, description: str, total: int | None, count: int) -> None:
        """Begin to count; nothing is written."""
        self._counts[phase] = _Count(description, total, monotonic())

    def draw_bar(self, phase: Phase, count: int, metrics: Mapping[str, object] | None) -> None:
        """Write a line."""
        of = self._counts[phase]
        total = "" if of.total is None else f"/{of.total}"
        details = [clock(monotonic() - of.started)]
        if metrics:
            details.append(format_metrics(metrics))
        print(f"{of.description}: {count}{total} [{', '.join(details)}]", flush=True)

    def close_bar(self, phase: Phase) -> None:
        """Stop counting; nothing is written."""
        del self._counts[phase]


def format_metrics(metrics: Mapping[str, object]) -> str:
    """Return `"loss=0.123, v_num=2"`."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in metrics.items()
    )


def clock(seconds: float) -> str:
    """Return `"01:23"`, with hours in front where there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def whole_number(argument: str, value: object, owner: type) -> int:
    """Return `value` if it is a whole number from 0 on.

    Raises:
        CallbackError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CallbackError(
            f"{argument} {value!r} of {owner.__qualname__}: must be a whole number from 0 on. "
            "Leave it out to have the usual one."
        )
    return value
