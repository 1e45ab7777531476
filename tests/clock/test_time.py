"""Times: texts, numbers with a unit, and reckoning in one unit."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest

from trainer_hooks import Time, TimeUnit
from trainer_hooks.clock.timing import parse_time
from trainer_hooks.errors import OptionError

BAD = [
    "", " ", "5", "5.0", "-3ep", "1.5ba", "10 parsecs", "10epochs", "1e400tok", "1e1000tok", "ep",
    "1__0ba", "_1ba", "1_ba", "nansec", "infsec", "1h30", "30m1h", "5mn", "1:30", "0x10ba",
    "1e-1ba", "1ep2ba", True, False, None, 5, 5.0, float("nan"), float("inf"), b"5ba", ["5ba"],
    timedelta(seconds=-1),
]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_what_is_no_time(value) -> None:
    """A text without a unit, of an unknown one, or with a broken count is refused."""
    with pytest.raises(OptionError, match=r"Time\(.*\): .*'500ba'; units are .*ba \(batches\)"):
        Time(value)
    with pytest.raises(OptionError, match=r"save_interval .* of Saver: .*'500ba'; units are"):
        parse_time(value, "save_interval", "Saver")


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        (1, "parsec"), (1, "EP "), (1.5, "ba"), (-1, "ba"), (True, "ba"), (float("nan"), "sec"),
        (float("inf"), "sec"), (2**63, "tok"), ("1", "ba"), (None, "ba"), (Time("1ba"), "ba"),
    ],
)  # fmt: skip
def test_what_is_no_number_of_a_unit(value, unit) -> None:
    """A number beside a unit follows the unit's rule, and the unit is one that there is."""
    with pytest.raises(OptionError, match=r"Time\(.*, '.*'\): "):
        Time(value, unit)


@pytest.mark.parametrize(
    ("value", "number", "unit"),
    [
        ("10ep", 10, "ep"), ("500ba", 500, "ba"), ("200st", 200, "st"), ("50_000sp", 50_000, "sp"),
        ("1e9tok", 10**9, "tok"), ("1.5e3tok", 1500, "tok"), ("0.25dur", 0.25, "dur"),
        ("2iter", 2, "iter"), ("90sec", 90.0, "sec"), ("90s", 90.0, "sec"), ("1.5sec", 1.5, "sec"),
        ("1h30m", 5400.0, "sec"), ("30h", 108_000.0, "sec"), ("90m", 5400.0, "sec"),
        ("1d2h3m4s", 93_784.0, "sec"), ("00:00:15:00", 900.0, "sec"), (" 5 BA ", 5, "ba"),
        ("2.0ep", 2, "ep"), ("0ba", 0, "ba"), (timedelta(minutes=1), 60.0, "sec"),
        ("1.5h", 5400.0, "sec"), ("90min", 5400.0, "sec"), ("5min", 300.0, "sec"),
        ("1.5m", 90.0, "sec"), ("2 hours", 7200.0, "sec"), ("1d12h", 129_600.0, "sec"),
        ("1 hour 30 minutes", 5400.0, "sec"), ("1 Day", 86_400.0, "sec"), ("2hrs", 7200.0, "sec"),
        ("1h 30.5s", 3630.5, "sec"), ("10 seconds", 10.0, "sec"), ("1min30s", 90.0, "sec"),
        (Time("3ep"), 3, "ep"), ("9223372036854775807tok", 2**63 - 1, "tok"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_a_time_may_be(value, number, unit) -> None:
    """Each unit has its texts; counts are ints and exact, shares and seconds floats."""
    time = Time(value)
    assert (time.value, time.unit, type(time.value)) == (number, TimeUnit(unit), type(number))
    assert Time(str(time)) == time == Time(number, unit)
    assert eval(repr(time), {"Time": Time}) == time


def test_times_are_values() -> None:
    """Equal times are equal and hash so; they can be copied and pickled, and not changed."""
    time = Time("500ba")
    assert time == Time(500, "ba")
    assert hash(time) == hash(Time("500ba"))
    assert time not in (Time("500st"), "500ba", 500)
    assert copy.deepcopy(time) == pickle.loads(pickle.dumps(time)) == time
    assert (int(time), float(time), bool(time), bool(Time("0ba"))) == (500, 500.0, True, False)
    with pytest.raises(AttributeError):
        time.value = 3  # type: ignore[misc]


def test_reckoning_in_one_unit() -> None:
    """Times of one unit are ordered, added, subtracted and divided; counts stay whole."""
    assert Time("3ep") < Time("4ep") <= Time("4ep") < Time("1e3ep")
    assert Time("30sec") < Time("1m")
    assert Time("1h") > Time("59m") >= Time("59m")
    assert Time("3ep") + Time("4ep") == Time("7ep")
    assert Time("3ep") - Time("3ep") == Time("0ep")
    assert Time("10ep") / 4 == Time("2ep")
    assert Time("1ep") / Time("4ep") == Time("0.25dur")
    assert 3 * Time("2ba") == Time("2ba") * 3 == Time("6ba")
    assert Time("10ba") * Time("0.25dur") == Time("2ba")
    assert Time("1000tok") * 0.1 == Time("100tok")
    assert Time("0.1dur") + Time("0.2dur") == Time("0.3dur")


@pytest.mark.parametrize(
    "reckon",
    [
        lambda: Time("3ep") < Time("3ba"), lambda: Time("3ep") >= Time("3st"),
        lambda: Time("3ep") + Time("3iter"), lambda: Time("3ep") - Time("4ep"),
        lambda: Time("3ep") / Time("3sec"), lambda: Time("3ep") / 0,
        lambda: Time("3ep") / Time("0ep"),
        lambda: Time("3ep") * True, lambda: Time("3ep") * float("nan"), lambda: Time("3ep") * -1,
        lambda: Time("3ep") * Time("3ep"), lambda: Time("3ep") + 5, lambda: Time("3ep") < "5ep",
        lambda: Time(2**62, "tok") * 4,
    ],
)  # fmt: skip
def test_reckoning_that_makes_no_sense(reckon) -> None:
    """Mixed units, bare numbers, results below zero and division by nothing are errors."""
    with pytest.raises(OptionError):
        reckon()


def test_what_an_argument_may_be_restricted_to() -> None:
    """An argument names its units, what a bare number counts, and is above zero."""
    units = (TimeUnit.EPOCH, TimeUnit.SECOND)
    assert parse_time(3, "patience", "Stopper", units=units, bare=TimeUnit.EPOCH) == Time("3ep")
    assert parse_time("1h", "patience", "Stopper", units=units) == Time("3600sec")
    with pytest.raises(
        OptionError, match=r"the unit 'ba' makes no sense here.*'1h30m'; units are ep"
    ):
        parse_time("3ba", "patience", "Stopper", units=units)
    for zero in ("0ep", "0sec", timedelta(0)):
        with pytest.raises(OptionError, match="above zero"):
            parse_time(zero, "patience", "Stopper")
    with pytest.raises(OptionError, match="at most 1"):
        parse_time("1.5dur", "interval", "Saver")
    for value in (True, 0, -1, 1.0):
        with pytest.raises(OptionError, match="A number without a unit counts epochs"):
            parse_time(value, "patience", "Stopper", bare=TimeUnit.EPOCH)
