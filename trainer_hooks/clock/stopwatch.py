"""Stopwatch: the wall time of a training, with validations told apart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Stopwatch"]


class Stopwatch:
    """Add up the seconds of training and of the validations inside it, over resumed runs.

    It is started and stopped where those begin and end, so a batch costs nothing.

    Attributes:
        agreed: the seconds that several processes go by, until they agree on others; None in one.
        is_read: whether anybody has asked for a clock made of them.
    """

    def __init__(self) -> None:
        self._train = 0.0
        self._eval = 0.0
        self._since: float | None = None
        self._is_evaluating = False
        self.agreed: tuple[float, float] | None = None
        self.is_read = False

    def start(self) -> None:
        """Count the time of training from here on; the time of a validation ends."""
        self._take_up(is_evaluating=False)

    def start_evaluating(self) -> None:
        """Count the time as that of a validation from here on, if any is counted."""
        if self._since is not None:
            self._take_up(is_evaluating=True)

    def end_evaluating(self) -> None:
        """Count the time as that of training again, if any is counted."""
        if self._since is not None:
            self._take_up(is_evaluating=False)

    def stop(self) -> None:
        """Count no more time."""
        self._train, self._eval = self.measure()
        self._since, self.agreed = None, None

    def read(self) -> tuple[float, float]:
        """Return the seconds so far, of training without validations and of validations."""
        return self.measure() if self.agreed is None else self.agreed

    def measure(self) -> tuple[float, float]:
        """Return the same, as far as this process has measured it."""
        if self._since is None:
            return self._train, self._eval
        passed = time.monotonic() - self._since
        if self._is_evaluating:
            return self._train, self._eval + passed
        return self._train + passed, self._eval

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds so far as plain data."""
        train, evaluation = self.measure()
        return {"train_seconds": train, "eval_seconds": evaluation}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from saved seconds; from none where nothing is known of them."""
        self._train = float(state_dict.get("train_seconds", 0.0))
        self._eval = float(state_dict.get("eval_seconds", 0.0))
        if self._since is not None:
            self._since = time.monotonic()

    def _take_up(self, *, is_evaluating: bool) -> None:
        self._train, self._eval = self.measure()
        self._since = time.monotonic()
        self._is_evaluating = is_evaluating
