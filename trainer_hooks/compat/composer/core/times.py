"""Time and TimeUnit, with Composer's arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import Time as Duration
from trainer_hooks.compat.composer.core.words import Words
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Time", "TimeUnit", "ensure_time"]

Number = int | float


class TimeUnit(Words):
    """What a `Time` counts."""

    ITERATION = "iter"
    EPOCH = "ep"
    BATCH = "ba"
    SAMPLE = "sp"
    TOKEN = "tok"
    DURATION = "dur"
    SECOND = "sec"


class Time:
    """A number of a unit; numbers beside it are taken as of that unit, texts are read.

    Texts are read as everywhere in trainer_hooks: a unit must be there, and `"30h"` is thirty
    hours, where Composer takes `"5"` for fifty seconds and refuses more than 23 hours.

    Args:
        value: how many.
        unit: of what.

    Attributes:
        value: likewise.
        unit: likewise.

    Raises:
        OptionError: it is no number, a count is broken, or two times are of different units.
    """

    __slots__ = ("unit", "value")

    def __init__(self, value: Number, unit: str = TimeUnit.EPOCH) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise OptionError(
                f"Time({value!r}): must be a number with a unit. Write Time(5, 'ep'), or "
                "Time.from_timestring('5ep')."
            )
        self.unit = TimeUnit(unit)
        if self.unit is not TimeUnit.DURATION and int(value) != value:
            raise OptionError(
                f"Time({value!r}, {unit!r}): must be a whole number. Only 'dur' may be broken."
            )
        self.value: Number = float(value) if self.unit is TimeUnit.DURATION else int(value)

    # --- how one is made ---

    @classmethod
    def from_iteration(cls, iteration: int) -> Time:
        """Return so many iterations."""
        return cls(iteration, TimeUnit.ITERATION)

    @classmethod
    def from_epoch(cls, epoch: int) -> Time:
        """Return so many epochs."""
        return cls(epoch, TimeUnit.EPOCH)

    @classmethod
    def from_batch(cls, batch: int) -> Time:
        """Return so many batches."""
        return cls(batch, TimeUnit.BATCH)

    @classmethod
    def from_sample(cls, sample: int) -> Time:
        """Return so many samples."""
        return cls(sample, TimeUnit.SAMPLE)

    @classmethod
    def from_token(cls, token: int) -> Time:
        """Return so many tokens."""
        return cls(token, TimeUnit.TOKEN)

    @classmethod
    def from_duration(cls, duration: float) -> Time:
        """Return a share of the training."""
        return cls(duration, TimeUnit.DURATION)

    @classmethod
    def from_timedelta(cls, timestring: str) -> Time:
        """Return the seconds of a text such as `"1h20m40s"`."""
        return cls.from_timestring(timestring)

    @classmethod
    def from_timestring(cls, timestring: str) -> Time:
        """Return what a text such as `"5ep"`, `"1e3tok"`, `"0.5dur"` or `"1h20m"` says.

        Raises:
            OptionError: it has no unit that is known, or a broken count.
        """
        read = Duration(timestring)
        return cls(read.value, read.unit.value)

    @classmethod
    def from_input(cls, i: Any, default_int_unit: str | None = None) -> Time:
        """Return a time as it is, what a text says, or a number of the default unit."""
        if isinstance(i, Time):
            return i
        if isinstance(i, str):
            return cls.from_timestring(i)
        if default_int_unit is None:
            raise OptionError(
                f"time {i!r}: a number needs a unit. Write a text such as '5ep', or Time(5, 'ep')."
            )
        return cls(i, default_int_unit)

    # --- what it says ---

    def to_timestring(self) -> str:
        """Return it as a text such as `"5ep"`."""
        return str(self)

    def __str__(self) -> str:
        return f"{self.value}{self.unit.value}"

    def __repr__(self) -> str:
        return f"Time({self.value}, TimeUnit.{self.unit.name})"

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __hash__(self) -> int:
        return hash((self.value, self.unit))

    # --- compared and reckoned with ---

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Time | str | int | float):
            return NotImplemented
        return self._with(other, "==") == 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._with(other, "<") < 0

    def __le__(self, other: Any) -> bool:
        return self._with(other, "<=") <= 0

    def __gt__(self, other: Any) -> bool:
        return self._with(other, ">") > 0

    def __ge__(self, other: Any) -> bool:
        return self._with(other, ">=") >= 0

    def __add__(self, other: Any) -> Time:
        return Time(self.value + self._alike(other, "+"), self.unit)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Time:
        return Time(self.value - self._alike(other, "-"), self.unit)

    def __rsub__(self, other: Any) -> Time:
        return Time(self._alike(other, "-") - self.value, self.unit)

    def __neg__(self) -> Time:
        return Time(-self.value, self.unit)

    def __pos__(self) -> Time:
        return self

    def __mod__(self, other: Any) -> Time:
        return Time(self.value % self._alike(other, "%"), self.unit)

    def __truediv__(self, other: Any) -> Time:
        """Return the part of it, or of a time of the same unit the ratio in `dur`."""
        if isinstance(other, int | float):
            return Time(self._as_own(self.value / other), self.unit)
        return Time(self.value / self._alike(other, "/"), TimeUnit.DURATION)

    def __mul__(self, other: Any) -> Time:
        """Return it times a number, or times a share of the training."""
        if isinstance(other, int | float):
            return Time(self._as_own(self.value * other), self.unit)
        time = Time.from_input(other)
        if TimeUnit.DURATION not in (self.unit, time.unit):
            raise OptionError(
                f"{self!r} * {time!r}: one of the two must be a share, in 'dur'. Multiply by a "
                "number."
            )
        unit = time.unit if self.unit is TimeUnit.DURATION else self.unit
        product = self.value * time.value
        return Time(product if unit is TimeUnit.DURATION else int(product), unit)

    __rmul__ = __mul__

    def _as_own(self, number: Number) -> Number:
        kind: Callable[[Number], Number] = type(self.value)
        return kind(number)

    def _with(self, other: Any, sign: str) -> Number:
        return self.value - self._alike(other, sign)

    def _alike(self, other: Any, sign: str) -> Number:
        """Return the value of another time of the same unit."""
        if isinstance(other, int | float):
            return other
        time = Time.from_input(other)
        if time.unit is not self.unit:
            raise OptionError(
                f"{self!r} {sign} {time!r}: both must be of one unit. Ask for the time in that "
                f"unit, as timestamp.get({time.unit.value!r}) does."
            )
        return time.value


def ensure_time(maybe_time: Any, int_unit: str) -> Time:
    """Return a time as it is, what a text says, or a number of `int_unit`."""
    return Time.from_input(maybe_time, int_unit)
