from __future__ import annotations

import math

import pytest

from trainer_hooks.callbacks.progress.display import Pace
from trainer_hooks.clock.progress import EpochStage


def ticking(clock, pace, counts, seconds=1.0):
    """Do batches that take so many seconds each; return at which counts something was due."""
    due = []
    for count in counts:
        clock.seconds += seconds
        if pace.is_due(count):
            due.append(count)
            pace.note_drawing(clock.seconds)
    return due


def test_rate_and_time_left(clock):
    """The rate is that of the batches since the start, and the time left follows from it."""
    pace = Pace()
    pace.start(0, 20, 1, is_terminal=True)
    assert (pace.rate, pace.seconds_left) == (None, None)
    ticking(clock, pace, range(1, 6), 2.0)
    assert (pace.rate, pace.seconds, pace.seconds_left) == (0.5, 10.0, 30.0)


def test_no_time_left_where_nobody_can_know(clock):
    """Without a total, and at the end, there is no time left to speak of."""
    pace = Pace()
    pace.start(0, None, 1, is_terminal=True)
    ticking(clock, pace, [1])
    assert (pace.rate, pace.seconds_left) == (1.0, None)
    pace.start(0, 1, 1, is_terminal=True)
    ticking(clock, pace, [1])
    assert pace.seconds_left is None


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("every", [1, 50])
def test_resumed_run_is_timed_from_its_first_batch(clock, is_terminal, every):
    """What a resume spends before its first batch is done, as skipping, is in no rate."""
    pace = Pace()
    pace.start(90, 100, every, is_terminal, is_resumed=True)
    clock.seconds += 600  # the loader skips 90 batches
    ticking(clock, pace, [91], 5.0)
    assert (pace.rate, pace.seconds) == (None, 0.0)
    ticking(clock, pace, range(92, 97), 2.0)
    assert (pace.rate, pace.seconds_left) == (0.5, 8.0)


def test_resume_before_the_last_batch_draws_it(clock):
    """Where the first batch after a resume is the last there is, it is drawn."""
    pace = Pace()
    pace.start(9, 10, 3, is_terminal=True, is_resumed=True)
    assert ticking(clock, pace, [10]) == [10]


def test_resume_in_a_log_draws_no_sooner(clock):
    """The first batch after a resume is no reason to write a line."""
    pace = Pace()
    pace.start(90, 1000, 1, is_terminal=False, is_resumed=True)
    assert ticking(clock, pace, range(91, 130)) == [100, 110, 120]


def test_pauses_are_in_no_rate(clock):
    """A clock that stands still counts nothing, however often it is told."""
    pace = Pace()
    pace.start(0, 10, 1, is_terminal=True)
    ticking(clock, pace, range(1, 5))
    pace.pause()
    pace.pause()
    clock.seconds += 1000
    pace.go_on()
    pace.go_on()
    ticking(clock, pace, range(5, 7))
    assert (pace.rate, pace.seconds, pace.seconds_left) == (1.0, 6.0, 4.0)


def test_slow_drawings_take_little_of_the_time(clock):
    """Where a drawing takes half a second, as over a slow line, all drawings take at most 5%."""
    pace = Pace()
    pace.start(0, None, 1, is_terminal=True)
    began, spent = clock.seconds, 0.0
    for count in range(1, 2000):
        clock.seconds += 0.05
        if pace.is_due(count):
            before = clock.seconds
            clock.seconds += 0.5
            spent += 0.5
            pace.note_drawing(before)
    assert 0 < spent <= 0.05 * (clock.seconds - began) + 0.5


def test_stopped_pace_is_never_due(clock):
    """A bar that is closed draws nothing."""
    pace = Pace()
    clock.seconds = 1e9
    assert not pace.is_due(1)
    assert math.isinf(pace._due)


# --- On the screen


def timed_fit(run, clock, kind, **options):
    fired = run(kind(), num_training_batches=100, max_epochs=1, **options)
    fired.at_batch = lambda count: setattr(clock, "seconds", clock.seconds + 1)
    fired.at_val_batch = lambda count: setattr(clock, "seconds", clock.seconds + 50)
    return fired


def test_validation_inside_changes_no_rate(kind, terminal, run, clock):
    """After a validation of 100 s in the middle, rate and time left are those of the training."""
    fired = timed_fit(run, clock, kind, num_val_batches=[2])
    fired.start()
    fired.trainer.progress.begin_epoch()
    fired.bar.on_train_epoch_start(*fired.args)
    fired.batches(until=41)
    fired.validate()
    fired.batches(until=42)
    [line] = terminal.screen
    # the 42nd batch is drawn before its own second has passed
    for part in ("42/100", "00:41<00:56", "1.02it/s"):
        assert part in line
    fired.batches()
    fired.bar.on_train_batches_end(*fired.args)
    fired.trainer.progress.stage = EpochStage.VALIDATING
    fired.validate()
    fired.bar.on_train_epoch_end(*fired.args)
    [line] = terminal.screen
    for part in ("100/100", "01:40", "1.00it/s"):
        assert part in line


def test_resume_inside_changes_no_rate(kind, terminal, run, clock):
    """Resumed at batch 60 after a skip of 500 s, rate and time left are those of now."""
    fired = timed_fit(run, clock, kind)
    progress = fired.trainer.progress
    progress.batches_in_epoch, progress.stage = 60, EpochStage.BATCHES
    fired.start()
    fired.bar.on_train_start(*fired.args)
    clock.seconds += 500
    fired.batches(until=61)
    assert "08:20" not in terminal.screen[0]  # 500 s
    fired.batches(until=81)
    [line] = terminal.screen
    for part in ("81/100", "00:20<00:19", "1.00it/s"):
        assert part in line
