"""Intervals written as text."""

from __future__ import annotations

import pytest

from trainer_hooks.errors import OptionError
from trainer_hooks.interval import Interval, parse_interval


@pytest.mark.parametrize(
    ("value", "count", "unit"),
    [
        ("500ba", 500, "ba"),
        ("1ep", 1, "ep"),
        (3, 3, "ep"),
        ("200ST", 200, "st"),
        (" 2 iter ", 2, "iter"),
        ("1e3ba", 1000, "ba"),
        ("2.0ep", 2, "ep"),
    ],
)
def test_what_an_interval_may_be(value, count, unit) -> None:
    """A number and a unit, whatever their case and spaces; a bare number counts epochs."""
    interval = parse_interval(value, "save_interval", "Saver")
    assert interval == Interval(count, unit)
    assert str(interval) == f"{count}{unit}"


@pytest.mark.parametrize(
    "value", ["", "ba", "500", "5 batches", "0ba", "-1ep", "1.5ba", 0, -1, True, 1.0, None, "5sec"]
)
def test_what_it_may_not_be(value) -> None:
    """Anything else is refused with the argument, its owner and the units that there are."""
    with pytest.raises(OptionError, match=r"save_interval .* of Saver: .*ba \(batches\)"):
        parse_interval(value, "save_interval", "Saver")


def test_a_multiple_that_is_jumped_over_counts() -> None:
    """The interval is passed whenever a multiple lies between two counts, or at the later one."""
    interval = Interval(4, "st")
    passed = [interval.is_passed(before, now) for before, now in [(0, 3), (3, 4), (4, 6), (6, 9)]]
    assert passed == [False, True, False, True]
