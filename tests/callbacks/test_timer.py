from __future__ import annotations

import logging
import math
from datetime import timedelta
from types import MappingProxyType

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Callback, Trainer, after, every
from trainer_hooks.callbacks import Timer
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.band import Band
from trainer_hooks.testing import TinyModule


def ten_seconds_a_batch(trainer, clock):
    trainer.on_train_batch = lambda t: clock.__setitem__(0, clock[0] + 10)
    return trainer


@pytest.mark.parametrize(
    "duration",
    [
        "8:00:00",
        "1:2:3:4",
        "00:00:00:00:00",
        "",
        60,
        timedelta(-1),
        {"hour": 1},
        {"hours": "x"},
        {"hours": math.nan},
        {"hours": math.inf},
        MappingProxyType({"hours": math.nan}),
        [],
    ],
    ids=str,
)
def test_bad_duration(duration):
    """A duration in no known form, or a negative one, is an error that shows the forms."""
    with pytest.raises(OptionError, match=r"duration .* of Timer: .*DD:HH:MM:SS"):
        Timer(duration)


def test_unknown_stage():
    """A stage that is none is an error that lists them."""
    with pytest.raises(OptionError, match=r"stage 'fit' of Timer: .*'train', 'validate'"):
        Timer().time_elapsed("fit")


@pytest.mark.parametrize(
    "duration",
    [
        "01:02:03:04",
        timedelta(1, 7384),
        {"days": 1, "hours": 2, "minutes": 3, "seconds": 4},
        MappingProxyType({"days": 1, "seconds": 7384}),
    ],
    ids=str,
)
def test_forms_of_a_duration(duration):
    """A text, a timedelta and a dict, or another mapping, mean the same."""
    assert Timer(duration).time_remaining() == 93784


def test_band_is_control():
    """The timer decides before the savers save."""
    assert Timer().band is Band.CONTROL


@pytest.mark.parametrize(("interval", "steps"), [("step", 3), ("epoch", 4)])
def test_stops_when_the_time_is_up(fake, clock, interval, steps):
    """It asks to stop after the step, or the epoch, in which the time ran out."""
    timer = Timer({"seconds": 25}, interval)
    trainer = ten_seconds_a_batch(fake(timer), clock)
    trainer.fit(3)
    assert trainer.global_step == steps
    assert "Timer: the time for training, 25 s, is up" in trainer.stop_reason
    assert (timer.time_elapsed(), timer.time_remaining()) == (steps * 10, 0)


@pytest.mark.parametrize(
    ("interval", "batches"),
    [
        ("1ba", 3),
        ("2ba", 4),
        ("1ep", 5),
        (every("1ba") & after("4ba"), 4),
        (lambda clock: clock.batches == 3, 3),
    ],
    ids=["each batch", "batches", "epochs", "filter", "function"],
)
def test_it_looks_when_an_interval_says_so(interval, batches, clock):
    """A time, a filter or a function may say after which batches, beside the ends of epochs."""

    class Work(Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            clock[0] += 10

    timer = Timer({"seconds": 25}, interval)
    trainer = Trainer(callbacks=[Work(), timer], max_epochs=3, **QUIET_OPTIONS)
    data = [[torch.ones(1, 2), torch.zeros(1, dtype=torch.long)]] * 5
    trainer.fit(TinyModule(), data)
    assert trainer.clock.batches == batches


def test_time_of_validation_counts(fake, clock):
    """An epoch's validation can use the time up."""
    trainer = fake(timer := Timer({"seconds": 25}))
    trainer.on_validation = lambda t: clock.__setitem__(0, clock[0] + 15)
    trainer.fit(9)
    assert trainer.current_epoch == 2
    assert timer.time_elapsed("validate") == 30


def test_without_duration_it_only_measures(fake, clock):
    """Without a duration it never stops, and tells start, end and what passed."""
    timer = Timer()
    assert (timer.start_time(), timer.end_time(), timer.time_elapsed()) == (None, None, 0)
    trainer = ten_seconds_a_batch(fake(timer), clock)
    trainer.fit(1)
    assert (timer.start_time(), timer.end_time(), timer.time_elapsed()) == (100, 140, 40)
    assert timer.time_remaining() is None
    assert not trainer.stop_calls


def test_elapsed_time_is_added_after_a_resume(fake, clock, tmp_path):
    """A resumed run has what is left, however long it lay."""
    trainer = ten_seconds_a_batch(fake(Timer({"seconds": 65})), clock)
    trainer.fit(1)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    clock[0] += 1000
    resumed = ten_seconds_a_batch(fake(timer := Timer({"seconds": 65})), clock)
    resumed.resume(tmp_path / "x.ckpt")
    assert timer.time_elapsed() == 40
    resumed.fit(9)
    assert resumed.global_step - trainer.global_step == 3
    assert timer.time_elapsed() == 70


def test_resumed_run_without_time_left(fake, clock, tmp_path):
    """A resume after the time was up stops before the first batch."""
    trainer = ten_seconds_a_batch(fake(Timer({"seconds": 40})), clock)
    trainer.fit(1)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    resumed = fake(Timer({"seconds": 40}))
    resumed.resume(tmp_path / "x.ckpt")
    resumed.fit(9)
    assert resumed.global_step == trainer.global_step


def test_fits_of_one_training_add_up_and_a_new_one_begins_at_zero(fake, clock):
    """A fit that goes on adds to the time; one of a new training starts at zero."""
    timer = Timer()
    trainer = ten_seconds_a_batch(fake(timer), clock)
    trainer.fit(1)
    trainer.fit(2)
    assert timer.time_elapsed() == 80
    ten_seconds_a_batch(fake(timer), clock).fit(1)
    assert timer.time_elapsed() == 40


def test_an_error_stops_the_clock(fake, clock):
    """Teardown stops a clock that an exception left running."""
    timer = Timer()
    trainer = fake(timer)
    trainer.start()
    clock[0] += 5
    trainer.fire("teardown", "fit")
    clock[0] += 5
    assert timer.time_elapsed() == 5


def test_the_sanity_check_starts_no_clock(fake, clock):
    """The validation batches before training do not count as validation."""
    timer = Timer()
    fake(timer).validate(sanity=True)
    assert timer.start_time("validate") is None


@pytest.mark.parametrize("stage", ["test", "predict"])
def test_other_stages_are_measured(fake, clock, stage):
    """test and predict have clocks of their own."""
    timer = Timer()
    trainer = fake(timer)
    trainer.state.fn = stage
    trainer.fire(f"on_{stage}_start")
    clock[0] += 7
    trainer.fire(f"on_{stage}_end")
    clock[0] += 7
    assert timer.time_elapsed(stage) == 7


def test_verbose_tells_once(fake, clock, caplog):
    """The end of the time is told once, even where the trainer may not stop yet."""
    caplog.set_level(logging.INFO, logger="trainer_hooks")
    for verbose in (True, False):
        trainer = ten_seconds_a_batch(fake(Timer({"seconds": 15}, verbose=verbose)), clock)
        trainer.start()
        for index in range(4):
            trainer.run_batch(index)
        assert len(trainer.stop_calls) == 3
        assert len(caplog.messages) == 1


def test_verbose_tells_each_fit(fake, clock, caplog):
    """A second fit of the same timer tells it again."""
    caplog.set_level(logging.INFO, logger="trainer_hooks")
    timer = Timer({"seconds": 15})
    for told in (1, 2):
        ten_seconds_a_batch(fake(timer), clock).fit(1)
        assert len(caplog.messages) == told


def test_the_dict_of_a_duration_stays_as_it_is():
    """What the caller passed is not changed, and a later change of it changes no timer."""
    duration = {"hours": 1}
    timer = Timer(duration)
    assert duration == {"hours": 1}
    duration["hours"] = 2
    assert timer.time_remaining() == 3600


def elapsed(seconds):
    return {"time_elapsed": {"train": seconds, "validate": 0.0, "test": 0.0, "predict": 0.0}}


@pytest.mark.parametrize(
    ("timers", "saved", "found"),
    [
        ([Timer("1h")], {"Timer": 5.0}, [5.0]),
        ([Timer("1h", "epoch"), Timer("2h")], {"Timer": 5.0}, [5.0, 5.0]),
        ([Timer("2h")], {Timer("1h").state_key: 5.0}, [5.0]),
        ([Timer()], {Timer("1h").state_key: 5.0}, [5.0]),
        (
            [Timer("1h"), Timer("3h")],
            {Timer("1h").state_key: 5.0, Timer("2h").state_key: 6.0},
            [5.0, 6.0],
        ),
    ],
    ids=["older", "older, two", "longer", "without an end", "one of two longer"],
)
def test_a_state_is_found_whatever_the_duration_was(timers, saved, found):
    """A resumed run has the time of the one before, of an older version and another end, too."""
    connector = CallbackConnector(timers, discover=False)
    states, upgraded = connector.upgrade_states({k: elapsed(v) for k, v in saved.items()}, {})
    report = connector.load_state_dict(states)
    assert [timer.time_elapsed() for timer in timers] == found
    assert (report.missing, report.unexpected, upgraded) == ((), (), ())


def test_two_in_one_trainer(quiet_trainer, tmp_path):
    """Two with other ends keep a state each, and a resume finds both."""

    def make():
        return [Timer("1h"), Timer("2h", verbose=False), Timer("2h", "epoch"), Timer()]

    assert Timer().state_key == "Timer"
    trainer = quiet_trainer(callbacks=make())
    trainer.fit(TinyModule())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    resumed = quiet_trainer(callbacks=make(), max_epochs=2)
    resumed.fit(TinyModule(), ckpt_path=tmp_path / "x.ckpt")
    assert len(resumed.load_report.restored) == 4
