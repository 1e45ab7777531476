"""Filters: when something is due, as functions of the clock before and the clock now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock.clock import Clock
from trainer_hooks.clock.timing import Time, TimeUnit, parse_time
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta

__all__ = ["Cue", "Filter", "When", "after", "every", "once", "parse_when", "word_or_when"]


class Filter:
    """Say whether something is due, given the clock when that was asked before and the clock now.

    It keeps nothing between two questions, so that nothing has to be saved and nothing is due a
    second time after a resume. Filters are joined with `|` (either is due) and `&` (both are).
    """

    __slots__ = ()

    @property
    def units(self) -> frozenset[TimeUnit]:
        """What it looks at; all units where only a function knows."""
        return frozenset(TimeUnit)

    def __call__(self, before: Clock, now: Clock) -> bool:
        """Return whether it is due."""
        raise NotImplementedError

    def __or__(self, other: Filter) -> Filter:
        return _Joined(self, other, "|") if isinstance(other, Filter) else NotImplemented

    def __and__(self, other: Filter) -> Filter:
        return _Joined(self, other, "&") if isinstance(other, Filter) else NotImplemented


@dataclass(frozen=True, slots=True, repr=False)
class _Joined(Filter):
    """Two filters: either, or both."""

    first: Filter
    second: Filter
    sign: str

    @property
    def units(self) -> frozenset[TimeUnit]:
        return self.first.units | self.second.units

    def __call__(self, before: Clock, now: Clock) -> bool:
        if self.sign == "|":
            return self.first(before, now) or self.second(before, now)
        return self.first(before, now) and self.second(before, now)

    def __repr__(self) -> str:
        parts = (self.first, self.second)
        shown = (f"({p})" if isinstance(p, _Joined) and p.sign != self.sign else p for p in parts)
        return f" {self.sign} ".join(map(str, shown))


@dataclass(frozen=True, slots=True, repr=False)
class _OfTime(Filter):
    """What a time decides."""

    time: Time

    @property
    def units(self) -> frozenset[TimeUnit]:
        return frozenset({self.time.unit})

    def __repr__(self) -> str:
        return f"{type(self).__name__.strip('_').lower()}({str(self.time)!r})"


@dataclass(frozen=True, slots=True, repr=False)
class _Every(_OfTime):
    """Due at each multiple of a time."""

    def __call__(self, before: Clock, now: Clock) -> bool:
        step, unit = self.time.exact_value, self.time.unit
        return now.count(unit) // step > before.count(unit) // step


@dataclass(frozen=True, slots=True, repr=False)
class _After(_OfTime):
    """Due from a time on."""

    def __call__(self, before: Clock, now: Clock) -> bool:  # noqa: ARG002 - as every filter
        return now.count(self.time.unit) >= self.time.exact_value


@dataclass(frozen=True, slots=True, repr=False)
class _Once(_OfTime):
    """Due as a time is come to."""

    def __call__(self, before: Clock, now: Clock) -> bool:
        unit = self.time.unit
        return before.count(unit) < self.time.exact_value <= now.count(unit)


@dataclass(frozen=True, slots=True, repr=False)
class _Asked(Filter):
    """Due when a function says so."""

    function: Callable[[Clock], bool]

    def __call__(self, before: Clock, now: Clock) -> bool:  # noqa: ARG002 - as every filter
        return bool(self.function(now))

    def __repr__(self) -> str:
        kind = type(self.function)
        return str(getattr(self.function, "__qualname__", kind.__qualname__))


When = str | Time | Filter | Callable[[Clock], bool]
"""How an interval may be given."""


def every(interval: str | Time | timedelta) -> Filter:
    """Return a filter that is due each time the training comes to a multiple of `interval`.

    A multiple that is jumped over counts, and several at once are due once.

    Raises:
        OptionError: it is no time above zero.
    """
    return _Every(parse_time(interval, "interval", "every()"))


def after(start: str | Time | timedelta) -> Filter:
    """Return a filter that is due whenever the training has come to `start`.

    Raises:
        OptionError: it is no time above zero.
    """
    return _After(parse_time(start, "start", "after()"))


def once(moment: str | Time | timedelta) -> Filter:
    """Return a filter that is due once: when the training comes to `moment`, or jumps over it.

    Raises:
        OptionError: it is no time above zero.
    """
    return _Once(parse_time(moment, "moment", "once()"))


def parse_when(
    value: object,
    name: str,
    where: str,
    *,
    units: Collection[TimeUnit] = tuple(TimeUnit),
    bare: TimeUnit | None = None,
) -> Filter:
    """Return the filter that an argument says: every interval of a callback goes through here.

    Args:
        value: a text such as `"500ba"` or a `Time`, which is done every so often; a filter; or a
            function of the `Clock` that returns whether to.
        name: the argument's name, for messages.
        where: whose argument it is.
        units: those that make sense there.
        bare: what a whole number without a unit counts; None where there must be a unit.

    Raises:
        OptionError: it is none of these.
    """
    if isinstance(value, Filter):
        return value
    if callable(value):
        return _Asked(value)
    return _Every(parse_time(value, name, where, units=units, bare=bare))


def word_or_when(value: object, name: str, where: str, words: Collection[str]) -> str | Filter:
    """Return one of `words` as it is, or the filter that an argument says.

    Raises:
        OptionError: it is neither.
    """
    if isinstance(value, str) and value in words:
        return value
    try:
        return parse_when(value, name, where)
    except OptionError as error:
        raise OptionError(f"{error} Or choose one of {', '.join(map(repr, words))}.") from None


class Cue:
    """A filter, and the clock when it was asked last.

    A callback calls `start` in `on_train_start` and asks `is_due` wherever it may act. It keeps
    `state_dict()` in its own state and hands it back to `load_state_dict`: a checkpoint may be
    saved between the moment when something becomes due and the moment when the callback asks.

    Args:
        when: the filter.
    """

    __slots__ = ("_asked", "_before", "when")

    def __init__(self, when: Filter) -> None:
        self.when = when
        self._before = Clock()
        self._asked: dict[str, int] | None = None

    def start(self, clock: Clock) -> None:
        """Ask from here on, or go on from what `load_state_dict` was given."""
        known: Any = {name: n for name, n in (self._asked or {}).items() if name in _COUNTS}
        self._before, self._asked = replace(clock, **known), None

    def forget(self) -> None:
        """Forget what `load_state_dict` was given: another training begins."""
        self._asked = None

    def is_due(self, clock: Clock) -> bool:
        """Return whether it is due, and count on from here."""
        before, self._before = self._before, clock
        return self.when(before, clock)

    def state_dict(self) -> dict[str, int]:
        """Return the counts when it was asked last, wall times left out."""
        if self._asked is not None:
            return dict(self._asked)
        return {name: getattr(self._before, name) for name in _COUNTS}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Take back what `state_dict` returned, for the next `start`."""
        self._asked = dict(state_dict)


_COUNTS = ("iterations", "epochs", "batches", "steps", "samples", "tokens")
