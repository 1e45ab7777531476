"""Time: an amount or a place in a training, in one unit, written as in `"500ba"`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from trainer_hooks.clock.time_texts import FRACTIONAL, UNITS, TimeUnit, parts_of
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["UNITS", "Time", "TimeUnit", "parse_span", "parse_time"]


@dataclass(frozen=True, slots=True, init=False)
class Time:
    """An amount of training, or the place in one that it leads to: a number and a unit.

    ::

        Time("500ba")         # a text: 500 batches
        Time("1h30m")         # wall time, in seconds from here on
        Time(10, "ep")        # a number and a unit
        Time("10ep") / 4      # arithmetic in one unit; parts of a count are left out: 2ep
        Time("30sec") < Time("1m")

    Units are `iter` (iterations), `ep` (epochs), `ba` (batches), `st` (optimizer steps), `sp`
    (samples), `tok` (tokens), `dur` (a share of the whole training) and `sec`; wall time may also
    be written as `"1d2h30m10s"`, `"1.5h"`, `"90min"`, `"2 hours"`, `"DD:HH:MM:SS"` or a timedelta.
    Case does not matter. Numbers may have underscores and exponents, as in `"50_000sp"` and
    `"1e9tok"`; only `dur` and wall time take broken ones. Two times are equal if they have one unit
    and one value; to order, add, subtract or divide times of different units is an error.

    Args:
        value: a text, a timedelta, another `Time`, or a number of `unit`.
        unit: what a number counts.

    Attributes:
        value: how many; never negative.
        unit: of what.

    Raises:
        OptionError: it is none of these, has no unit, or its number breaks the unit's rule.
    """

    value: int | float
    unit: TimeUnit

    def __init__(self, value: str | timedelta | Time | float, unit: str | None = None) -> None:
        parts = _read(value, unit)
        if isinstance(parts, str):
            shown = repr(value) if unit is None else f"{value!r}, {unit!r}"
            raise OptionError(f"Time({shown}): {parts}. {_advice(UNITS)}")
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
        return Fraction(repr(self.value)) if isinstance(self.value, float) else Fraction(self.value)

    @property
    def exact_value(self) -> int | Fraction:
        """The same, but a count as an int, with which it is quicker to reckon."""
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
        """Return the part of it, or of a time of the same unit the ratio in `dur`."""
        if isinstance(divisor, Time):
            ratio = self.exact / _not_zero(self._alike(divisor, "/"), self)
            return Time(float(ratio), TimeUnit.DURATION)
        return self._of(self.exact / _not_zero(_number(divisor, self, "/"), self))

    def _of(self, value: Fraction) -> Time:
        """Return a time of the same unit; of a count its whole part."""
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
    """Return the wall time in seconds that an argument says; it may be zero.

    Args:
        value: what was given: a text, a `Time`, a timedelta, or the arguments of one as a dict.
        name: the argument's name, for messages.
        where: whose argument it is.

    Raises:
        OptionError: it is none of these, negative, or of another unit.
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
    """Return the time above zero that an argument says.

    Args:
        value: what was given: a text, a `Time`, or for wall time a timedelta.
        name: the argument's name, for messages.
        where: whose argument it is.
        units: those that make sense there.
        bare: what a whole number without a unit counts; None where there must be a unit.

    Raises:
        OptionError: it is none of these, not above zero, or of another unit.
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
    """Return a number and its unit, or the rule that they break; see `parts_of`."""
    if isinstance(value, Time) and unit is None:
        return value.value, value.unit
    return parts_of(value, unit)


def _advice(units: Collection[TimeUnit]) -> str:
    """Return what to write instead, and the units that there are."""
    chosen = [unit for unit in TimeUnit if unit in units]
    examples = {TimeUnit.SECOND: "1h30m", TimeUnit.BATCH: "500ba"}
    example = next((examples[u] for u in chosen if u in examples), f"10{chosen[0].value}")
    listed = ", ".join(
        "s, m, h and d (wall time)" if unit is TimeUnit.SECOND else f"{unit.value} ({UNITS[unit]})"
        for unit in chosen
    )
    return f"Write a number and a unit, such as {example!r}; units are {listed}."


def _number(value: object, time: Time, sign: str) -> Fraction:
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))
    raise OptionError(
        f"{value!r} in {time!r} {sign} {value!r}: it must be a finite number. Use such a number."
    )


def _not_zero(value: Fraction, time: Time) -> Fraction:
    if not value:
        raise OptionError(f"divisor 0 of {time!r}: it must not be zero. Divide by another.")
    return value
