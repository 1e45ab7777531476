"""A timer that can be stopped and started again."""

from __future__ import annotations

import time


class PausableTimer:
    """A timer that can be stopped and started again.

    Args:
        elapsed: its initial seconds.
    """

    __slots__ = ("_before", "_since")

    def __init__(self, elapsed: float = 0.0) -> None:
        self._before = elapsed
        self._since: float | None = None

    @property
    def elapsed(self) -> float:
        """The seconds for which it has run."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._before + running

    def start(self) -> None:
        """Start the timer; a running one runs on."""
        if self._since is None:
            self._since = time.perf_counter()

    def stop(self) -> None:
        """Stop the timer, if it runs."""
        self._before, self._since = self.elapsed, None
