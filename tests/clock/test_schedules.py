"""Filters: every, after, once, what they are joined to, and what an interval may be."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest

from trainer_hooks import Clock, Time, TimeUnit, after, every, once
from trainer_hooks.clock.schedules import DueTracker, parse_when
from trainer_hooks.errors import OptionError, TrainerHooksWarning


def due(when, numbers, unit="batches", **more) -> list[int]:
    """Return at which of `numbers` a filter is due, asked at each."""
    cue, found = DueTracker(when), []
    cue.start(Clock(**more))
    for number in numbers:
        if cue.is_due(Clock(**{unit: number}, **more)):
            found.append(number)
    return found


def late(clock: Clock) -> bool:
    """Say that it is late."""
    return clock.batches >= 8


@pytest.mark.parametrize("make", [every, after, once])
@pytest.mark.parametrize("value", ["5", "", 5, "0ba", "-1ba", "1.5ba", None, True, "2dur", len])
def test_what_no_filter_can_be_made_of(make, value) -> None:
    """A filter needs a time above zero, with its unit."""
    with pytest.raises(OptionError, match=rf"of {make.__name__}\(\): "):
        make(value)


@pytest.mark.parametrize(
    ("unit", "counter"),
    [("iter", "iterations"), ("ep", "epochs"), ("ba", "batches"), ("st", "steps"),
     ("sp", "samples"), ("tok", "tokens"), ("sec", "train_seconds")],
)  # fmt: skip
def test_every_counts_in_each_unit(unit, counter) -> None:
    """It is due at multiples, at one that was jumped over, and once for several."""
    assert due(every(f"4{unit}"), [0, 3, 4, 5, 9, 9, 30], counter) == [4, 9, 30]


def test_every_and_once_by_the_share_of_the_whole() -> None:
    """Shares of any end are exact: a tenth of 30 batches is due ten times, once at each third."""
    for text in ("0.1dur", Time(0.1, "dur")):
        ends = ((TimeUnit.BATCH, 30),)
        assert due(every(text), range(1, 31), ends=ends) == list(range(3, 31, 3))
    assert due(once("0.5dur"), range(1, 31), ends=((TimeUnit.BATCH, 30),)) == [15]


def test_after_is_due_from_then_on_and_once_only_then() -> None:
    """`after` stays due; `once` is due at the moment, or at the first time asked past it."""
    assert due(after("4ba"), range(1, 7)) == [4, 5, 6]
    assert due(once("4ba"), range(1, 7)) == [4]
    assert due(once("4ba"), [3, 6, 7]) == [6]


def test_filters_are_joined() -> None:
    """`|` is due where either is and `&` where both are; each shows how it is made."""
    when = every("3ba") & after("5ba") | once("4ba")
    assert due(when, range(1, 10)) == [4, 6, 9]
    assert repr(when) == "(every('3ba') & after('5ba')) | once('4ba')"
    assert due(every("3ba") & (after("8ba") | once("3ba")), range(1, 10)) == [3, 9]
    with pytest.raises(TypeError):
        every("3ba") | "4ba"


def test_a_filter_is_not_due_again_after_a_resume() -> None:
    """Asked from the clock of a checkpoint on, a filter gives what it would have given."""
    for when in (every("3ba"), once("4ba"), after("5ba"), every("2ba") & after("3ba")):
        whole = due(when, range(1, 13))
        for cut in range(13):
            resumed = DueTracker(when)
            resumed.start(Clock(batches=cut))
            rest = [n for n in range(cut + 1, 13) if resumed.is_due(Clock(batches=n))]
            assert rest == [n for n in whole if n > cut]


def test_what_an_interval_may_be() -> None:
    """A text and a time mean every so often; a filter is taken as it is; a function is asked."""
    for value in ("4ba", Time("4ba"), every("4ba")):
        assert due(parse_when(value, "interval", "Saver"), range(1, 9)) == [4, 8]
    assert due(parse_when(late, "interval", "Saver"), range(1, 10)) == [8, 9]
    assert repr(parse_when(late, "interval", "Saver")) == "late"
    bare = parse_when(4, "interval", "Saver", bare=TimeUnit.BATCH)
    assert due(bare, range(1, 9)) == [4, 8]


@pytest.mark.parametrize("value", ["5", "", 5, None, True, "0ba", "often"])
def test_what_an_interval_may_not_be(value) -> None:
    """Anything else is refused with the argument, its owner, and what to write."""
    with pytest.raises(OptionError, match=r"interval .* of Saver: .*Write a number and a unit"):
        parse_when(value, "interval", "Saver")


def test_filters_are_values() -> None:
    """They compare, copy and pickle, as the arguments of callbacks must."""
    when = (every("4ba") | once("1h")) & after("2ep")
    assert pickle.loads(pickle.dumps(when)) == copy.deepcopy(when) == when
    assert when != every("4ba")


def test_a_clock_is_a_value() -> None:
    """A snapshot cannot be changed, and equals another of the same moment."""
    clock = Clock(batches=3)
    with pytest.raises(AttributeError):
        clock.batches = 4  # type: ignore[misc]
    assert clock == Clock(batches=3) == copy.deepcopy(clock)
    assert replace(clock, batches=4).batches_in_epoch == 4


@pytest.mark.parametrize(("old", "new"), [("Cue", "DueTracker"), ("parse_when", "parse_when")])
def test_the_former_place_names_the_new_one(old: str, new: str) -> None:
    """A name of `clock.filters` is the one of `clock.schedules`, with a warning that says so."""
    from trainer_hooks.clock import filters, schedules

    with pytest.warns(TrainerHooksWarning, match=f"`from {schedules.__name__} import {new}`"):
        assert getattr(filters, old) is getattr(schedules, new)
    with pytest.raises(AttributeError, match="no attribute 'Clock'"):
        filters.Clock  # noqa: B018
