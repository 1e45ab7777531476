"""Time, TimeUnit and Timestamp, with Composer's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock.timing import Time as Duration
from trainer_hooks.compat.composer.core.event import StringEnum
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Time", "TimeUnit", "Timestamp", "ensure_time"]


Number = int | float


class TimeUnit(StringEnum):
    """The unit of a `Time`."""

    ITERATION = "iter"
    EPOCH = "ep"
    BATCH = "ba"
    SAMPLE = "sp"
    TOKEN = "tok"
    DURATION = "dur"
    SECOND = "sec"


class Time:
    """A number with a unit; in arithmetic a plain number has its unit, and a text is parsed.

    Texts are parsed as everywhere in trainer_hooks: a unit is required, and `"30h"` is thirty
    hours, where Composer takes `"5"` for fifty seconds and refuses more than 23 hours.

    Args:
        value: the number.
        unit: the unit, such as `"ep"`.

    Attributes:
        value: the number: a float in `dur`, an int in every other unit.
        unit: the unit.

    Raises:
        OptionError: the value is no number, or no whole one; or two times have different units.
    """

    __slots__ = ("unit", "value")

    def __init__(self, value: Number, unit: str = TimeUnit.EPOCH) -> None:
        # a bool is an int to Python
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

    # --- constructors ---

    @classmethod
    def from_iteration(cls, iteration: int) -> Time:
        """Return a time in iterations."""
        return cls(iteration, TimeUnit.ITERATION)

    @classmethod
    def from_epoch(cls, epoch: int) -> Time:
        """Return a time in epochs."""
        return cls(epoch, TimeUnit.EPOCH)

    @classmethod
    def from_batch(cls, batch: int) -> Time:
        """Return a time in batches."""
        return cls(batch, TimeUnit.BATCH)

    @classmethod
    def from_sample(cls, sample: int) -> Time:
        """Return a time in samples."""
        return cls(sample, TimeUnit.SAMPLE)

    @classmethod
    def from_token(cls, token: int) -> Time:
        """Return a time in tokens."""
        return cls(token, TimeUnit.TOKEN)

    @classmethod
    def from_duration(cls, duration: float) -> Time:
        """Return a time as a share of the training."""
        return cls(duration, TimeUnit.DURATION)

    @classmethod
    def from_timedelta(cls, timestring: str) -> Time:
        """Return a time in seconds from a text such as `"1h20m40s"`."""
        return cls.from_timestring(timestring)

    @classmethod
    def from_timestring(cls, timestring: str) -> Time:
        """Return a time from a text such as `"5ep"`, `"1e3tok"`, `"0.5dur"` or `"1h20m"`.

        Raises:
            OptionError: the text has no known unit, or a count that is no whole number.
        """
        parsed = Duration(timestring)
        return cls(parsed.value, parsed.unit.value)

    @classmethod
    def from_input(cls, i: Any, default_int_unit: str | None = None) -> Time:
        """Return a time from a time, a text, or a number of the default unit."""
        if isinstance(i, Time):
            return i
        if isinstance(i, str):
            return cls.from_timestring(i)
        if default_int_unit is None:
            raise OptionError(
                f"time {i!r}: a number needs a unit. Write a text such as '5ep', or Time(5, 'ep')."
            )
        return cls(i, default_int_unit)

    # --- conversions ---

    def to_timestring(self) -> str:
        """Return the time as a text such as `"5ep"`."""
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

    # --- comparison and arithmetic ---

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Time | str | int | float):
            return NotImplemented
        # raises for another unit, as Composer does: False would hide the mistake
        return self._difference(other, "==") == 0

    def __lt__(self, other: Any) -> bool:
        return self._difference(other, "<") < 0

    def __le__(self, other: Any) -> bool:
        return self._difference(other, "<=") <= 0

    def __gt__(self, other: Any) -> bool:
        return self._difference(other, ">") > 0

    def __ge__(self, other: Any) -> bool:
        return self._difference(other, ">=") >= 0

    def __add__(self, other: Any) -> Time:
        return Time(self.value + self._value_of(other, "+"), self.unit)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Time:
        return Time(self.value - self._value_of(other, "-"), self.unit)

    def __rsub__(self, other: Any) -> Time:
        return Time(self._value_of(other, "-") - self.value, self.unit)

    def __neg__(self) -> Time:
        return Time(-self.value, self.unit)

    def __pos__(self) -> Time:
        return self

    def __mod__(self, other: Any) -> Time:
        return Time(self.value % self._value_of(other, "%"), self.unit)

    def __truediv__(self, other: Any) -> Time:
        """Return the time divided by a number, or its ratio in `dur` to a time of its unit."""
        if isinstance(other, int | float):
            # cut off, as in Composer, in every unit but dur
            return Time(self._cast(self.value / other), self.unit)
        return Time(self.value / self._value_of(other, "/"), TimeUnit.DURATION)

    def __mul__(self, other: Any) -> Time:
        """Return the time multiplied by a number, or by a share of the training."""
        if isinstance(other, int | float):
            return Time(self._cast(self.value * other), self.unit)
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

    def _cast(self, number: Number) -> Number:
        kind: Callable[[Number], Number] = type(self.value)
        return kind(number)

    def _difference(self, other: Any, sign: str) -> Number:
        return self.value - self._value_of(other, sign)

    def _value_of(self, other: Any, sign: str) -> Number:
        """Return the value of another time; `sign` is the operation, for the error."""
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
    """Return a time from a time, a text, or a number of `int_unit`."""
    return Time.from_input(maybe_time, int_unit)


_UNITS = {
    "iteration": TimeUnit.ITERATION,
    "epoch": TimeUnit.EPOCH,
    "batch": TimeUnit.BATCH,
    "sample": TimeUnit.SAMPLE,
    "token": TimeUnit.TOKEN,
    "epoch_in_iteration": TimeUnit.EPOCH,
    "token_in_iteration": TimeUnit.TOKEN,
    "batch_in_epoch": TimeUnit.BATCH,
    "sample_in_epoch": TimeUnit.SAMPLE,
    "token_in_epoch": TimeUnit.TOKEN,
}
_NONE = timedelta(0)
_EPOCH_START: dict[str, Any] = {
    **dict.fromkeys(("batch_in_epoch", "sample_in_epoch", "token_in_epoch"), 0),
    **dict.fromkeys(("epoch_wct", "batch_wct"), _NONE),
}
"""The values of a timestamp between two epochs."""


@dataclass(frozen=True, slots=True, eq=False)  # __eq__ below also takes a Time or a text
class Timestamp:
    """The counts of a training at one moment; it never changes.

    It compares with a `Time` or a text by its own count in that unit.

    Attributes:
        iteration: iterations completed.
        epoch: epochs completed.
        batch: batches trained.
        sample: samples of those batches.
        token: tokens of those batches.
        epoch_in_iteration: epochs of the present iteration.
        token_in_iteration: tokens of the present iteration.
        batch_in_epoch: batches of the present epoch.
        sample_in_epoch: samples of the present epoch.
        token_in_epoch: tokens of the present epoch.
        total_wct: wall time of the training, without evaluations.
        iteration_wct: wall time of the present iteration.
        epoch_wct: wall time of the present epoch.
        batch_wct: wall time of the last batch.

    Raises:
        OptionError: a count has another unit than its attribute.
    """

    iteration: Time = field(default=Time(0, TimeUnit.ITERATION))
    epoch: Time = field(default=Time(0, TimeUnit.EPOCH))
    batch: Time = field(default=Time(0, TimeUnit.BATCH))
    sample: Time = field(default=Time(0, TimeUnit.SAMPLE))
    token: Time = field(default=Time(0, TimeUnit.TOKEN))
    epoch_in_iteration: Time = field(default=Time(0, TimeUnit.EPOCH))
    token_in_iteration: Time = field(default=Time(0, TimeUnit.TOKEN))
    batch_in_epoch: Time = field(default=Time(0, TimeUnit.BATCH))
    sample_in_epoch: Time = field(default=Time(0, TimeUnit.SAMPLE))
    token_in_epoch: Time = field(default=Time(0, TimeUnit.TOKEN))
    total_wct: timedelta = _NONE
    iteration_wct: timedelta = _NONE
    epoch_wct: timedelta = _NONE
    batch_wct: timedelta = _NONE

    def __post_init__(self) -> None:
        """Convert numbers to times of their attributes' units."""
        for name, unit in _UNITS.items():
            time = Time.from_input(getattr(self, name), unit)
            if time.unit is not unit:
                raise OptionError(
                    f"Timestamp({name}={time!r}): must be in {unit.value!r}. Give a number."
                )
            # the class is frozen
            object.__setattr__(self, name, time)

    def get(self, unit: str) -> Time:
        """Return the count in a unit.

        Raises:
            OptionError: the unit is unknown, or `dur`: only the trainer knows the whole duration.
        """
        known_unit = TimeUnit(unit)
        if known_unit is TimeUnit.SECOND:
            # cut off: a Time is whole in every unit but dur
            return Time(int(self.total_wct.total_seconds()), TimeUnit.SECOND)
        if known_unit is TimeUnit.DURATION:
            raise OptionError(
                "Timestamp.get('dur'): a timestamp does not know how long the training is. Call "
                "state.get_elapsed_duration()."
            )
        time: Time = getattr(self, known_unit.name.lower())
        return time

    def copy(self, **changes: Any) -> Timestamp:
        """Return a timestamp with some values replaced."""
        # Composer's callers pass None for what stays
        return replace(self, **{name: v for name, v in changes.items() if v is not None})

    def to_next_batch(
        self, samples: int | Time = 0, tokens: int | Time = 0, duration: timedelta | None = None
    ) -> Timestamp:
        """Return the timestamp after one more batch, of some samples, tokens and wall time."""
        spent = duration or _NONE
        return replace(
            self,
            batch=self.batch + 1,
            batch_in_epoch=self.batch_in_epoch + 1,
            sample=self.sample + samples,
            sample_in_epoch=self.sample_in_epoch + samples,
            token=self.token + tokens,
            token_in_epoch=self.token_in_epoch + tokens,
            token_in_iteration=self.token_in_iteration + tokens,
            total_wct=self.total_wct + spent,
            iteration_wct=self.iteration_wct + spent,
            epoch_wct=self.epoch_wct + spent,
            batch_wct=spent,
        )

    def to_next_epoch(self, duration: timedelta | None = None) -> Timestamp:
        """Return the timestamp after the end of the epoch."""
        spent = duration or _NONE
        return replace(
            self,
            epoch=self.epoch + 1,
            epoch_in_iteration=self.epoch_in_iteration + 1,
            total_wct=self.total_wct + spent,
            iteration_wct=self.iteration_wct + spent,
            **_EPOCH_START,
        )

    def to_next_iteration(self, duration: timedelta | None = None) -> Timestamp:
        """Return the timestamp after the end of the iteration."""
        spent = duration or _NONE
        return replace(
            self,
            iteration=self.iteration + 1,
            epoch_in_iteration=0,  # type: ignore[arg-type] # __post_init__ gives it its unit
            token_in_iteration=0,  # type: ignore[arg-type]
            total_wct=self.total_wct + spent,
            iteration_wct=_NONE,
            **_EPOCH_START,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as numbers and the wall times, by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: v.value if isinstance(v, Time) else v for name, v in values.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned; nothing else changes a timestamp."""
        # a checkpoint of another version may lack some, and have others
        for name in {item.name for item in fields(self)} & set(state):
            unit = _UNITS.get(name)
            value = state[name] if unit is None else Time(state[name], unit)
            object.__setattr__(self, name, value)

    # --- comparison ---

    def __hash__(self) -> int:
        return hash(tuple(self.state_dict().values()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Timestamp):
            return self.state_dict() == other.state_dict()
        if not isinstance(other, Time | str):
            return NotImplemented
        time = Time.from_input(other)
        return self.get(time.unit) == time

    def __lt__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) < other

    def __le__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) <= other

    def __gt__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) > other

    def __ge__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) >= other

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.state_dict().items())
        return f"Timestamp({', '.join(shown)})"
