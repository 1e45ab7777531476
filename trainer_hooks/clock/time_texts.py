"""Units of time, and the one grammar of texts that say a time."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

__all__ = ["FRACTIONAL", "UNITS", "TimeUnit", "parts_of"]


class TimeUnit(StrEnum):
    """What a `Time` counts."""

    ITERATION = "iter"
    EPOCH = "ep"
    BATCH = "ba"
    STEP = "st"
    SAMPLE = "sp"
    TOKEN = "tok"
    DURATION = "dur"
    SECOND = "sec"


UNITS: dict[TimeUnit, str] = {
    TimeUnit.ITERATION: "iterations",
    TimeUnit.EPOCH: "epochs",
    TimeUnit.BATCH: "batches",
    TimeUnit.STEP: "optimizer steps",
    TimeUnit.SAMPLE: "samples",
    TimeUnit.TOKEN: "tokens",
    TimeUnit.DURATION: "share of the whole training",
    TimeUnit.SECOND: "seconds",
}
"""Every unit, and what it counts."""

_KNOWN = {unit.value: unit for unit in TimeUnit}
FRACTIONAL = frozenset({TimeUnit.DURATION, TimeUnit.SECOND})
_MOST = 2**63 - 1
_MOST_SECONDS = int(timedelta.max.total_seconds())
_NUMBER = r"\d+(?:_\d+)*"
_COUNTED = re.compile(rf"({_NUMBER}(?:\.(?:{_NUMBER})?)?(?:e[+-]?\d{{1,3}})?)\s*([a-z]+)", re.I)
_SPAN = re.compile(
    r"\s*".join(
        rf"(?:({_NUMBER}(?:\.\d+)?)\s*{unit})?"
        for unit in ("d(?:ays?)?", "h(?:rs?|ours?)?", "m(?:ins?|inutes?)?", "s(?:ecs?|econds?)?")
    ),
    re.I,
)
_BARE = re.compile(rf"{_NUMBER}(?:\.{_NUMBER})?")
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d):(\d\d)")
_SECONDS_OF = (86_400, 3_600, 60, 1)


def parts_of(value: object, unit: str | None) -> tuple[int | float, TimeUnit] | str:
    """Return a number and its unit, or the rule that `value` and `unit` break.

    Args:
        value: a text or a timedelta, or a number of `unit`.
        unit: what a number counts; None for a text and a timedelta.
    """
    if unit is not None:
        if unit not in _KNOWN:
            return f"there is no unit {unit!r}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "beside a unit there must be a number"
        return _checked(Fraction(value) if math.isfinite(value) else None, _KNOWN[unit])
    if isinstance(value, timedelta):
        return _checked(Fraction(value // timedelta(microseconds=1), 10**6), TimeUnit.SECOND)
    if isinstance(value, str):
        return _parsed(value.strip())
    return "it must be a number and a unit"


def _parsed(text: str) -> tuple[int | float, TimeUnit] | str:
    """Return what a text says, or the rule that it breaks."""
    if (match := _COUNTED.fullmatch(text)) and match[2].lower() in _KNOWN:
        return _checked(Fraction(Decimal(match[1].replace("_", ""))), _KNOWN[match[2].lower()])
    match = _SPAN.fullmatch(text) or _CLOCK.fullmatch(text)
    if match and any(match.groups()):
        parts = [Fraction((part or "0").replace("_", "")) for part in match.groups()]
        seconds = sum(part * each for part, each in zip(parts, _SECONDS_OF, strict=True))
        return _checked(Fraction(seconds), TimeUnit.SECOND)
    return "it has no unit" if _BARE.fullmatch(text) else "it must be a number and a unit"


def _checked(number: Fraction | None, unit: TimeUnit) -> tuple[int | float, TimeUnit] | str:
    """Return a number as the unit has it, or the rule that it breaks."""
    most = _MOST_SECONDS if unit is TimeUnit.SECOND else _MOST
    if number is None or not 0 <= number <= most:
        return f"its number must be from 0 to {most}"
    if unit in FRACTIONAL:
        return float(number), unit
    if number.denominator != 1:
        return f"{UNITS[unit]} are counted in whole numbers"
    return int(number), unit
