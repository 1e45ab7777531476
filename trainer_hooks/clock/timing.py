"""Time: an amount of training or a moment of it, in one unit, written as in `"500ba"`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection
    from fractions import Fraction


class TimeUnit(StrEnum):
    """The unit of a `Time`."""

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
"""The units, with their names in words."""

_KNOWN = {unit.value: unit for unit in TimeUnit}
FRACTIONAL = frozenset({TimeUnit.DURATION, TimeUnit.SECOND})
_MOST = 2**63 - 1
_MOST_SECONDS = int(timedelta.max.total_seconds())
_NUMBER = r"\d+(?:_\d+)*"
# texts, which `re` compiles at their first use: most trainings read no time
# three digits of exponent at most: Fraction(Decimal('1e999999999')) would fill the memory
_COUNTED = rf"({_NUMBER}(?:\.(?:{_NUMBER})?)?(?:e[+-]?\d{{1,3}})?)\s*([a-z]+)"
# each unit at most once, in this order: "1d2h30m10s"
_SPAN = r"\s*".join(
    rf"(?:({_NUMBER}(?:\.\d+)?)\s*{unit})?"
    for unit in ("d(?:ays?)?", "h(?:rs?|ours?)?", "m(?:ins?|inutes?)?", "s(?:ecs?|econds?)?")
)
_BARE = rf"{_NUMBER}(?:\.{_NUMBER})?"
# days, hours, minutes and seconds with colons, as schedulers of clusters write them
_CLOCK = r"(\d+):(\d\d):(\d\d):(\d\d)"
_SECONDS_OF = (86_400, 3_600, 60, 1)


def parse_amount(value: object, unit: str | None) -> tuple[int | float, TimeUnit] | str:
    """Return a number and its unit, or the rule that `value` and `unit` break, as a text.

    Args:
        value: a text or a timedelta, or a number of `unit`.
        unit: the unit of a number; None for a text or a timedelta.
    """
    from fractions import Fraction

    if unit is not None:
        if unit not in _KNOWN:
            return f"there is no unit {unit!r}"
        # True is an int, too
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "beside a unit there must be a number"
        return _checked(Fraction(value) if math.isfinite(value) else None, _KNOWN[unit])
    if isinstance(value, timedelta):
        # not total_seconds(), which is a rounded float
        return _checked(Fraction(value // timedelta(microseconds=1), 10**6), TimeUnit.SECOND)
    if isinstance(value, str):
        return _parsed(value.strip())
    return "it must be a number and a unit"


def _parsed(text: str) -> tuple[int | float, TimeUnit] | str:
    """Return number and unit of a text, or the rule that it breaks."""
    from decimal import Decimal
    from fractions import Fraction

    if (match := re.fullmatch(_COUNTED, text, re.I)) and match[2].lower() in _KNOWN:
        return _checked(Fraction(Decimal(match[1].replace("_", ""))), _KNOWN[match[2].lower()])
    match = re.fullmatch(_SPAN, text, re.I) or re.fullmatch(_CLOCK, text)
    # every part of a span is optional, so the pattern matches an empty text, too
    if match and any(match.groups()):
        parts = [Fraction((part or "0").replace("_", "")) for part in match.groups()]
        seconds = sum(part * each for part, each in zip(parts, _SECONDS_OF, strict=True))
        return _checked(Fraction(seconds), TimeUnit.SECOND)
    return "it has no unit" if re.fullmatch(_BARE, text) else "it must be a number and a unit"


def _checked(number: Fraction | None, unit: TimeUnit) -> tuple[int | float, TimeUnit] | str:
    """Return a number as int or float, as its unit requires, or the rule that it breaks."""
    most = _MOST_SECONDS if unit is TimeUnit.SECOND else _MOST
    if number is None or not 0 <= number <= most:
        return f"its number must be from 0 to {most}"
    if unit in FRACTIONAL:
        return float(number), unit
    if number.denominator != 1:
        return f"{UNITS[unit]} are counted in whole numbers"
    return int(number), unit


@dataclass(frozen=True, slots=True, init=False)
class Time:
    """An amount of training, or the moment after that amount: a number and a unit.

    ::

        Time("500ba")         # a text: 500 batches
        Time("1h30m")         # wall time, which is kept in seconds
        Time(10, "ep")        # a number and a unit
        Time("10ep") / 4      # arithmetic in one unit; counts are rounded down: 2ep
        Time("30sec") < Time("1m")

    Units are `iter` (iterations), `ep` (epochs), `ba` (batches), `st` (optimizer steps), `sp`
    (samples), `tok` (tokens), `dur` (a share of the whole training) and `sec`; wall time may also
    be written as `"1d2h30m10s"`, `"1.5h"`, `"90min"`, `"2 hours"`, `"DD:HH:MM:SS"` or a timedelta.
    Case does not matter. Numbers may have underscores and exponents, as in `"50_000sp"` and
    `"1e9tok"`; only `dur` and wall time take fractions. Two times are equal if unit and value are;
    comparing, adding, subtracting or dividing times of different units is an error.

    Args:
        value: a text, a timedelta, another `Time`, or a number of `unit`.
        unit: the unit of a number.

    Attributes:
        value: the number; never negative.
        unit: the unit.

    Raises:
        OptionError: the value is none of these, has no unit, or its number breaks the unit's rule.
    """

    value: int | float
    unit: TimeUnit

    def __init__(self, value: str | timedelta | Time | float, unit: str | None = None) -> None:
        parts = _read(value, unit)
        if isinstance(parts, str):
            shown = repr(value) if unit is None else f"{value!r}, {unit!r}"
            raise OptionError(f"Time({shown}): {parts}. {_advice(UNITS)}")
        # a frozen dataclass refuses plain assignments
        object.__setattr__(self, "value", parts[0])
        object.__setattr__(self, "unit", parts[1])

    def __str__(self) -> str:
        number = self.value
        return f"{int(number) if number == int(number) else number}{self.unit.value}"

    def __repr__(self) -> str:
        return f"Time({str(self)!r})"

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return self.value != 0

    @property
    def exact(self) -> Fraction:
        """The value without the rounding of floats: 0.1 is one tenth."""
        from fractions import Fraction

        # by way of repr: Fraction(0.1) is the binary value nearest to one tenth, and not one tenth
        return Fraction(repr(self.value)) if isinstance(self.value, float) else Fraction(self.value)

    @property
    def exact_value(self) -> int | Fraction:
        """The value without rounding; a count as an int, with which arithmetic is faster."""
        return self.value if isinstance(self.value, int) else self.exact

    def __lt__(self, other: Time) -> bool:
        return self.exact < self._alike(other, "<")

    def __le__(self, other: Time) -> bool:
        return self.exact <= self._alike(other, "<=")

    def __gt__(self, other: Time) -> bool:
        return self.exact > self._alike(other, ">")

    def __ge__(self, other: Time) -> bool:
        return self.exact >= self._alike(other, ">=")

    def __add__(self, other: Time) -> Time:
        return self._of(self.exact + self._alike(other, "+"))

    def __sub__(self, other: Time) -> Time:
        return self._of(self.exact - self._alike(other, "-"))

    def __mul__(self, factor: Time | float) -> Time:
        if isinstance(factor, Time):
            if factor.unit is not TimeUnit.DURATION:
                raise OptionError(
                    f"time {factor!r} in {self!r} * {factor!r}: only a number or a share, such as "
                    "Time('0.5dur'), can be a factor. Multiply by one."
                )
            return self._of(self.exact * factor.exact)
        return self._of(self.exact * _number(factor, self, "*"))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Time | float) -> Time:
        """Return a fraction of this time; for a time as divisor the ratio of both, in `dur`."""
        if isinstance(divisor, Time):
            ratio = self.exact / _not_zero(self._alike(divisor, "/"), self)
            return Time(float(ratio), TimeUnit.DURATION)
        return self._of(self.exact / _not_zero(_number(divisor, self, "/"), self))

    def _of(self, value: Fraction) -> Time:
        """Return a time of the same unit; a count is rounded down."""
        if value < 0:
            raise OptionError(
                f"time {float(value):g}{self.unit.value}, reckoned with {self!r}: a time is never "
                "negative. Compare the two before."
            )
        return Time(float(value) if self.unit in FRACTIONAL else math.floor(value), self.unit)

    def _alike(self, other: object, sign: str) -> Fraction:
        """Return the value of another time of the same unit."""
        if not isinstance(other, Time) or other.unit is not self.unit:
            raise OptionError(
                f"{other!r} in {self!r} {sign} {other!r}: both must be times of one unit. Give it "
                f"as one in {self.unit.value!r}."
            )
        return other.exact


def parse_span(value: object, name: str, where: str) -> float:
    """Return an argument that is a wall time in seconds; it may be zero.

    Args:
        value: a text, a `Time`, a timedelta, or the keyword arguments of one as a dict.
        name: the argument's name, for messages.
        where: the class or function of the argument, for messages.

    Raises:
        OptionError: the value is none of these, negative, or of another unit.
    """
    parts: tuple[int | float, TimeUnit] | str
    try:
        span = timedelta(**value) if isinstance(value, Mapping) else value
    except (TypeError, ValueError, OverflowError):
        parts = "it has what no timedelta takes"
    else:
        parts = _read(span, None)
    if isinstance(parts, str) or parts[1] is not TimeUnit.SECOND:
        rule = parts if isinstance(parts, str) else f"{UNITS[parts[1]]} are no wall time"
        raise OptionError(
            f"{name} {value!r} of {where}: {rule}. Pass 'DD:HH:MM:SS', a text such as '8h', a "
            "timedelta, or the keyword arguments of one as a dict; none of them negative."
        )
    return float(parts[0])


def parse_time(
    value: object,
    name: str,
    where: str,
    *,
    units: Collection[TimeUnit] = tuple(TimeUnit),
    bare: TimeUnit | None = None,
) -> Time:
    """Return an argument that is a time above zero.

    Args:
        value: a text, a `Time`, or for wall time a timedelta.
        name: the argument's name, for messages.
        where: the class or function of the argument, for messages.
        units: the allowed units.
        bare: the unit of a whole number without one; None if it must have a unit.

    Raises:
        OptionError: the value is none of these, not above zero, or of another unit.
    """
    takes_bare = bare is not None and isinstance(value, int) and not isinstance(value, bool)
    parts = _read(value, bare if takes_bare else None)
    if not isinstance(parts, str) and parts[1] not in units:
        parts = f"the unit {parts[1].value!r} makes no sense here"
    if not isinstance(parts, str) and parts[0] == 0:
        parts = "it must be above zero"
    if not isinstance(parts, str) and parts[1] is TimeUnit.DURATION and parts[0] > 1:
        parts = "a share of the training is at most 1"
    if isinstance(parts, str):
        plain = f" A number without a unit counts {UNITS[bare]}." if bare is not None else ""
        raise OptionError(f"{name} {value!r} of {where}: {parts}. {_advice(units)}{plain}")
    return Time(*parts)


def _read(value: object, unit: str | None) -> tuple[int | float, TimeUnit] | str:
    """Return a number and its unit, or the rule that they break, as `parse_amount`."""
    if isinstance(value, Time) and unit is None:
        return value.value, value.unit
    return parse_amount(value, unit)


def _advice(units: Collection[TimeUnit]) -> str:
    """Return an example and the list of allowed units, for a message."""
    chosen = [unit for unit in TimeUnit if unit in units]
    examples = {TimeUnit.SECOND: "1h30m", TimeUnit.BATCH: "500ba"}
    example = next((examples[u] for u in chosen if u in examples), f"10{chosen[0].value}")
    listed = ", ".join(
        "s, m, h and d (wall time)" if unit is TimeUnit.SECOND else f"{unit.value} ({UNITS[unit]})"
        for unit in chosen
    )
    return f"Write a number and a unit, such as {example!r}; units are {listed}."


def _number(value: object, time: Time, sign: str) -> Fraction:
    from fractions import Fraction

    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value):
        # by way of repr, as in `Time.exact`
        return Fraction(repr(value))
    raise OptionError(
        f"{value!r} in {time!r} {sign} {value!r}: it must be a finite number. Use such a number."
    )


def _not_zero(value: Fraction, time: Time) -> Fraction:
    if not value:
        raise OptionError(f"divisor 0 of {time!r}: it must not be zero. Divide by another.")
    return value
