"""What is written beside a bar, and instead of one where there is no terminal."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.callbacks.progress.pace import Pace

__all__ = ["Phase", "PlainLines", "format_metrics", "rate_of", "run_of", "times_of", "whole_number"]


class Phase(StrEnum):
    """What a bar counts."""

    SANITY = "sanity"
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    PREDICT = "predict"


class PlainLines:
    """Stand in for a bar where lines cannot be drawn over: write a line now and then."""

    def __init__(self) -> None:
        self._descriptions: dict[Phase, str] = {}

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Begin to count; nothing is written."""
        self._descriptions[phase] = description

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Write a line."""
        total = "" if pace.total is None else f"/{pace.total}"
        shown = [times_of(pace), rate_of(pace), run_of(pace), format_metrics(metrics or {})]
        details = ", ".join(part for part in shown if part)
        print(f"{self._descriptions[phase]}: {pace.count}{total} [{details}]", flush=True)

    def close_bar(self, phase: Phase) -> None:
        """Stop counting; nothing is written."""
        del self._descriptions[phase]


def format_metrics(metrics: Mapping[str, object], spec: str = ".4g", delimiter: str = ", ") -> str:
    """Return `"loss=0.123, v_num=2"`; `spec` is how numbers with a fraction are written."""
    return delimiter.join(
        f"{name}={value:{spec}}" if isinstance(value, float) else f"{name}={value}"
        for name, value in metrics.items()
    )


def times_of(pace: Pace) -> str:
    """Return the time spent and, where it is known, the time left: `"00:12<01:23"`."""
    left = pace.seconds_left
    return _clock(pace.seconds) + ("" if left is None else f"<{_clock(left)}")


def rate_of(pace: Pace) -> str:
    """Return `"12.34it/s"`, or nothing if it is not known yet."""
    rate = pace.rate
    return "" if rate is None else f"{rate:.2f}it/s"


def run_of(pace: Pace) -> str:
    """Return the time left of the whole run, `"run<1:02:03"`, or nothing."""
    return "" if pace.run_left is None else f"run<{_clock(pace.run_left)}"


def _clock(seconds: float) -> str:
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
