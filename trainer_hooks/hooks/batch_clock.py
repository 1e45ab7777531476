"""BatchClock: the time that training batches take, validations in between left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BatchClock"]


class BatchClock:
    """Time training batches one after another; times are in ns.

    Args:
        clock: tells the time.

    Attributes:
        batches: how many are done.
        total: the time of those, without the pauses.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.batches = 0
        self.total = 0
        self._clock = clock
        self._start: int | None = None
        self._paused_at: int | None = None
        self._paused = 0

    @property
    def is_running(self) -> bool:
        """Whether a batch is under way and not paused."""
        return self._start is not None and self._paused_at is None

    def begin(self) -> None:
        """Begin a batch; one that is under way came to no end, and is forgotten."""
        self._paused_at = None
        self._paused = 0
        self._start = self._clock()

    def pause(self) -> None:
        """Leave out the time from here on."""
        if self.is_running:
            self._paused_at = self._clock()

    def resume(self) -> None:
        """Count the time again."""
        if self._paused_at is not None:
            self._paused += self._clock() - self._paused_at
            self._paused_at = None

    def end(self) -> tuple[int, int, int] | None:
        """End the batch; return its start, its whole length and its time without the pauses.

        None if no batch is under way.
        """
        if self._start is None:
            return None
        self.resume()
        start, self._start = self._start, None
        length = self._clock() - start
        elapsed = length - self._paused
        self.batches += 1
        self.total += elapsed
        return start, length, elapsed

    def abandon(self) -> None:
        """Forget the batch under way, if there is one: something cut it off."""
        self._start = self._paused_at = None

    def clear(self) -> None:
        """Forget everything."""
        self.abandon()
        self.batches = self.total = 0
