"""Schedules: conditions on two clock readings that say whether something is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import answers_keywords
from trainer_hooks.clock.clock import Clock
from trainer_hooks.clock.timing import Time, TimeUnit, parse_time
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta


class DueCondition:
    """A condition on the clock at the last check and the clock now: whether something is due.

    It has no state of its own, so that nothing has to be saved, and nothing is due a second time
    after a resume. Conditions are combined with `|` (either is due) and `&` (both are).
    """

    __slots__ = ()

    @property
    def units(self) -> frozenset[TimeUnit]:
        """The units on which the condition depends; all units for a function."""
        return frozenset(TimeUnit)

    def __call__(self, before: Clock, now: Clock) -> bool:
        """Return whether the condition is due.

        Args:
            before: the clock at the last check.
            now: the clock now.
        """
        raise NotImplementedError

    def __or__(self, other: DueCondition) -> DueCondition:
        return _Joined(self, other, "|") if isinstance(other, DueCondition) else NotImplemented

    def __and__(self, other: DueCondition) -> DueCondition:
        return _Joined(self, other, "&") if isinstance(other, DueCondition) else NotImplemented


@dataclass(frozen=True, slots=True, repr=False)
class _Joined(DueCondition):
    """Two conditions, of which either or both must be due."""

    first: DueCondition
    second: DueCondition
    sign: str

    @property
    def units(self) -> frozenset[TimeUnit]:
        return self.first.units | self.second.units

    def __call__(self, before: Clock, now: Clock) -> bool:
        # neither condition has a state, so it does no harm that the second may not be called
        if self.sign == "|":
            return self.first(before, now) or self.second(before, now)
        return self.first(before, now) and self.second(before, now)

    def __repr__(self) -> str:
        parts = (self.first, self.second)
        shown = (f"({p})" if isinstance(p, _Joined) and p.sign != self.sign else p for p in parts)
        return f" {self.sign} ".join(map(str, shown))


@dataclass(frozen=True, slots=True, repr=False)
class _OfTime(DueCondition):
    """A condition on one time."""

    time: Time

    @property
    def units(self) -> frozenset[TimeUnit]:
        return frozenset({self.time.unit})

    def __repr__(self) -> str:
        return f"{type(self).__name__.strip('_').lower()}({str(self.time)!r})"


class _Every(_OfTime):
    """Due at each multiple of a time."""

    __slots__ = ()

    def __call__(self, before: Clock, now: Clock) -> bool:
        # whole multiples are compared, so that one that is jumped over counts too
        step, unit = self.time.exact_value, self.time.unit
        return now.count(unit) // step > before.count(unit) // step


class _After(_OfTime):
    """Due from a time on."""

    __slots__ = ()

    def __call__(self, before: Clock, now: Clock) -> bool:  # noqa: ARG002 - as every condition
        return now.count(self.time.unit) >= self.time.exact_value


class _Once(_OfTime):
    """Due when a time is reached or passed."""

    __slots__ = ()

    def __call__(self, before: Clock, now: Clock) -> bool:
        unit = self.time.unit
        # excluded at one end: it is due at one check only, wherever the checks fall
        return before.count(unit) < self.time.exact_value <= now.count(unit)


@dataclass(frozen=True, slots=True, repr=False)
class _Function(DueCondition):
    """Due when a function of the clock returns True."""

    function: Callable[[Clock], bool]

    def __call__(self, before: Clock, now: Clock) -> bool:  # noqa: ARG002 - as every condition
        return bool(self.function(now))

    def __repr__(self) -> str:
        kind = type(self.function)
        return str(getattr(self.function, "__qualname__", kind.__qualname__))


When = str | Time | DueCondition | Callable[[Clock], bool]
"""The types of an argument that says when something is due."""


@answers_keywords
def every(interval: str | Time | timedelta) -> DueCondition:
    """Return a condition that is due each time the training reaches a multiple of `interval`.

    A multiple that is jumped over counts; several at once are due once.

    Raises:
        OptionError: the interval is no time above zero.
    """
    return _Every(parse_time(interval, "interval", "every()"))


@answers_keywords
def after(start: str | Time | timedelta) -> DueCondition:
    """Return a condition that is due at every check from `start` on.

    Raises:
        OptionError: the start is no time above zero.
    """
    return _After(parse_time(start, "start", "after()"))


@answers_keywords
def once(moment: str | Time | timedelta) -> DueCondition:
    """Return a condition that is due once: when the training reaches `moment`, or jumps over it.

    Raises:
        OptionError: the moment is no time above zero.
    """
    return _Once(parse_time(moment, "moment", "once()"))


def parse_when(
    value: object,
    name: str,
    where: str,
    *,
    units: Collection[TimeUnit] = tuple(TimeUnit),
    bare: TimeUnit | None = None,
) -> DueCondition:
    """Return an argument that says when something is due, as a condition.

    Every interval argument of a callback is parsed here.

    Args:
        value: a text such as `"500ba"` or a `Time`, which is an interval; a condition; or a
            function of the `Clock` that returns whether it is due.
        name: the argument's name, for messages.
        where: the class or function of the argument, for messages.
        units: the allowed units.
        bare: the unit of a whole number without one; None if it must have a unit.

    Raises:
        OptionError: the value is none of these.
    """
    # first, as a condition is callable, too
    if isinstance(value, DueCondition):
        return value
    if callable(value):
        return _Function(value)
    return _Every(parse_time(value, name, where, units=units, bare=bare))


def parse_word_or_when(
    value: object, name: str, where: str, words: Collection[str]
) -> str | DueCondition:
    """Return an argument that is one of `words` as it is, and any other as a condition.

    Raises:
        OptionError: the value is neither.
    """
    if isinstance(value, str) and value in words:
        return value
    try:
        return parse_when(value, name, where)
    except OptionError as error:
        raise OptionError(f"{error} Or choose one of {', '.join(map(repr, words))}.") from None


class DueTracker:
    """A due condition with the clock at its last check.

    A callback calls `start` in `on_train_start` and `is_due` wherever it may act. It keeps
    `state_dict()` in its own state and restores it with `load_state_dict`: a checkpoint may be
    saved between the moment when something becomes due and the callback's next check.

    Args:
        when: the condition.
    """

    __slots__ = ("_before", "_restored", "when")

    def __init__(self, when: DueCondition) -> None:
        self.when = when
        self._before = Clock()
        self._restored: dict[str, int] | None = None

    def start(self, clock: Clock) -> None:
        """Check from this clock on, or from the one that `load_state_dict` restored."""
        # a state of another version may hold other names
        counts: Any = {name: n for name, n in (self._restored or {}).items() if name in _COUNTS}
        self._before, self._restored = replace(clock, **counts), None

    def forget(self) -> None:
        """Drop a restored state, as another training begins."""
        self._restored = None

    def is_due(self, clock: Clock) -> bool:
        """Return whether the condition is due; the next check compares with this clock."""
        before, self._before = self._before, clock
        return self.when(before, clock)

    def state_dict(self) -> dict[str, int]:
        """Return the counts at the last check, without wall times, which differ after a resume."""
        # a save before `start`, as in `setup`, must not lose what was restored
        if self._restored is not None:
            return dict(self._restored)
        return {name: getattr(self._before, name) for name in _COUNTS}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Restore the counts that `state_dict` returned, for the next `start`."""
        self._restored = dict(state_dict)


_COUNTS = ("iterations", "epochs", "batches", "steps", "samples", "tokens")
