"""How far a training has come: counters, units, the clock made of them, and filters on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.clock.filters import Cue, Filter, When, every, parse_when, word_or_when
    from trainer_hooks.clock.progress import EpochStage, Progress
    from trainer_hooks.clock.timekeeper import Timekeeper
    from trainer_hooks.clock.timing import Time, TimeUnit, parse_span, parse_time

__all__ = [
    "Clock",
    "Cue",
    "EpochStage",
    "Filter",
    "Progress",
    "Time",
    "TimeUnit",
    "Timekeeper",
    "When",
    "every",
    "parse_span",
    "parse_time",
    "parse_when",
    "word_or_when",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "Clock": "clock",
            "Cue": "filters",
            "EpochStage": "progress",
            "Filter": "filters",
            "Progress": "progress",
            "Time": "timing",
            "TimeUnit": "timing",
            "Timekeeper": "timekeeper",
            "When": "filters",
            "every": "filters",
            "parse_span": "timing",
            "parse_time": "timing",
            "parse_when": "filters",
            "word_or_when": "filters",
        },
    )
