"""Time and timestamps; expected is what `composer/core/time.py` does, but for what is noted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from trainer_hooks.compat.composer import Time, Timestamp, TimeUnit
from trainer_hooks.compat.composer.core import ensure_time


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("5ep", 5, TimeUnit.EPOCH),
        ("3e4tok", 30000, TimeUnit.TOKEN),
        ("0.5dur", 0.5, TimeUnit.DURATION),
        ("1h20m40s", 4840, TimeUnit.SECOND),
        ("10SP", 10, TimeUnit.SAMPLE),
        ("2iter", 2, TimeUnit.ITERATION),
        ("30h", 108000, TimeUnit.SECOND),  # Composer refuses more than 23 hours
    ],
)
def test_texts_are_read(text, value, unit) -> None:
    """A text gives a value and a unit."""
    time = Time.from_timestring(text)
    assert (time.value, time.unit) == (value, unit)


@pytest.mark.parametrize("text", ["5", "ep", "1.5ep", "5xy", ""])
def test_other_texts_are_refused(text) -> None:
    """A number alone, too, which Composer takes for seconds."""
    with pytest.raises(ValueError, match="Time"):
        Time.from_timestring(text)


def test_arithmetic_is_composers() -> None:
    """Numbers and texts stand for times of the same unit; shares multiply."""
    five = Time(5, TimeUnit.EPOCH)
    assert five == 5 == Time.from_epoch(5)
    assert five == "5ep"
    assert five != 4
    assert five < 6 <= Time(6, "ep")
    assert (five + 1, 1 + five, five - "2ep", 7 - five) == (6, 6, 3, 2)
    assert -five == -5
    assert five % 2 == 1
    assert five / 2 == Time(2, "ep")
    assert five / Time(10, "ep") == Time(0.5, "dur")
    assert five * 2 == Time(10, "ep") == 2 * five
    assert Time(10, "ba") * Time(0.25, "dur") == Time(2, "ba")
    assert (int(five), float(five), str(five), five.to_timestring()) == (5, 5.0, "5ep", "5ep")
    assert repr(five) == "Time(5, TimeUnit.EPOCH)"
    assert hash(five) == hash(Time(5, "ep"))
    assert [int(t) for t in (
        Time.from_iteration(1), Time.from_batch(2), Time.from_sample(3), Time.from_token(4),
        Time.from_timedelta("5s"), ensure_time(6, "ba"),
    )] == [1, 2, 3, 4, 5, 6]  # fmt: skip


@pytest.mark.parametrize(
    "reckon", [lambda a, b: a < b, lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a == b]
)
def test_units_are_not_mixed(reckon) -> None:
    """Times of two units are neither compared nor reckoned with."""
    with pytest.raises(ValueError, match=r"of one unit|a share"):
        reckon(Time(1, "ep"), Time(1, "ba"))


@pytest.mark.parametrize("value", [True, "5", None, 1.5])
def test_a_count_is_a_whole_number(value) -> None:
    """Only a share may be broken."""
    with pytest.raises(ValueError, match="Time"):
        Time(value, "ep")


def test_a_timestamp_advances() -> None:
    """A batch, an epoch and an iteration count what Composer counts, in a copy."""
    start = Timestamp()
    batch = start.to_next_batch(4, 8, timedelta(seconds=1))
    assert start == Timestamp()
    assert (batch.batch, batch.sample_in_epoch, batch.token_in_iteration) == (1, 4, 8)
    assert (batch.total_wct, batch.batch_wct) == (timedelta(seconds=1),) * 2
    epoch = batch.to_next_epoch()
    assert (epoch.epoch, epoch.batch, epoch.batch_in_epoch, epoch.epoch_wct) == (
        1, 1, 0, timedelta(0),
    )  # fmt: skip
    iteration = epoch.to_next_iteration()
    assert (iteration.iteration, iteration.epoch_in_iteration, iteration.token) == (1, 0, 8)
    again = Timestamp()
    again.load_state_dict(iteration.state_dict())
    assert again == iteration
    assert hash(again) == hash(iteration)
    assert epoch.copy(epoch=5).epoch == 5


def test_a_timestamp_is_compared_in_a_unit() -> None:
    """With a time or a text, by the count of its unit."""
    now = Timestamp(epoch=2, batch=10)
    assert now < "3ep"
    assert now >= Time(10, "ba")
    assert now > "1ep"
    assert now <= "10ba"
    assert now == "2ep"
    assert now.get("ep") == 2
    assert now.get("sec") == 0
    assert "batch=10" in repr(now)
    with pytest.raises(ValueError, match="get_elapsed_duration"):
        now.get("dur")
    with pytest.raises(ValueError, match="must be in 'ba'"):
        Timestamp(batch=Time(1, "ep"))
