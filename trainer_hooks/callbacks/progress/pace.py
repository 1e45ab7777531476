"""Pace: how fast batches go by, and when a bar that counts them is to be drawn."""

from __future__ import annotations

import math
from time import monotonic

__all__ = ["Pace"]

_ON_TERMINAL = 0.1
_IN_LOG = 10.0
_SHARE = 19
"""How many times as long as a drawing took nothing is drawn after it: at most 5% of the time."""


class Pace:
    """Count batches, time them, and decide in a fraction of a microsecond whether to draw.

    Attributes:
        count: batches done.
        drawn: batches done when something was drawn last.
        first: batches done when the timing began; they are in no rate.
        total: batches there are, None if unknown.
        run_left: seconds until the end of the whole run, None if unknown or the same.
    """

    __slots__ = (
        "_due",
        "_every",
        "_interval",
        "_is_timed",
        "_last",
        "_since",
        "_spent",
        "count",
        "drawn",
        "first",
        "run_left",
        "total",
    )

    def __init__(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Let nothing be due any more."""
        self._due = math.inf
        self._every = 1
        self._interval = 0.0
        self._last = -1
        self._is_timed = True
        self._since: float | None = None
        self._spent = 0.0
        self.total: int | None = None
        self.run_left: float | None = None
        self.count = self.drawn = self.first = 0

    def start(
        self,
        count: int,
        total: int | None,
        every: int,
        is_terminal: bool,
        is_resumed: bool = False,
    ) -> None:
        """Begin to count towards `total`.

        On a terminal something is due when 0.1 s have passed and `count` is a multiple of `every`,
        and at the last batch. In a log it is due when 10 s have passed. A resumed run is timed from
        its first batch on: what comes before that, as the batches that its loader skips, is no
        training.
        """
        now = monotonic()
        if self._due == math.inf:
            self._due = now + (0.0 if is_terminal else _IN_LOG)
        self._interval = _ON_TERMINAL if is_terminal else _IN_LOG
        self._every = every
        self.total = total
        self._since, self._spent = now, 0.0
        self._is_timed = not is_resumed
        self.count = self.drawn = self.first = count
        self._last = count + 1 if is_resumed else self._end

    @property
    def _end(self) -> int:
        return -1 if self.total is None or self._interval != _ON_TERMINAL else self.total

    def is_due(self, count: int) -> bool:
        """Note that `count` batches are done; return whether to draw."""
        self.count = count
        if count == self._last:
            return self._is_timed or self._begin_timing()
        return not count % self._every and monotonic() >= self._due

    def _begin_timing(self) -> bool:
        """Let the timing start with the batch just done; return whether to draw."""
        self._is_timed = True
        self._last = self._end
        self._since, self._spent, self.first = monotonic(), 0.0, self.count
        return self.count == self._last or monotonic() >= self._due

    @property
    def is_time(self) -> bool:
        """Whether enough time has passed since something was drawn."""
        return monotonic() >= self._due

    def note_drawing(self, began: float) -> None:
        """Note that something was drawn, and that this took from `began` until now."""
        now = monotonic()
        self.drawn = self.count
        self._due = now + max(self._interval, _SHARE * (now - began))

    def pause(self) -> None:
        """Stop the clock, as for a validation inside an epoch."""
        if self._since is not None:
            self._spent += monotonic() - self._since
            self._since = None

    def go_on(self) -> None:
        """Let a clock that was stopped run on."""
        if self._since is None:
            self._since = monotonic()

    @property
    def seconds(self) -> float:
        """How long the batches took, without the pauses."""
        return self._spent + (0.0 if self._since is None else monotonic() - self._since)

    @property
    def rate(self) -> float | None:
        """Batches a second, None if nothing can be said yet."""
        seconds = self.seconds
        return (
            (self.count - self.first) / seconds if seconds > 0 < self.count - self.first else None
        )

    @property
    def seconds_left(self) -> float | None:
        """How long the other batches will take at this rate, None if nothing can be said."""
        rate = self.rate
        if self.total is None or rate is None or self.count >= self.total:
            return None
        return (self.total - self.count) / rate
