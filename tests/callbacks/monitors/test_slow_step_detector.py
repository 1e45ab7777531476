from __future__ import annotations

import math
import statistics

import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint, SlowStepDetector
from trainer_hooks.callbacks.monitors.slow_step_detector import SlowStep


@pytest.fixture(autouse=True)
def _warnings_alone(caplog):
    """Keep how a fit ended out of what is looked at here."""
    caplog.set_level("WARNING", "trainer_hooks")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Slowed:
    """A loader whose batches take as long to load as it is told."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def __len__(self):
        return len(self.seconds)

    def __iter__(self):
        for number, seconds in enumerate(self.seconds):
            self.clock.now += seconds
            yield torch.full((2 + number % 2, 2), 1.0)


@pytest.fixture
def run(quiet_trainer, Tiny, MemoryLogger):
    """Return a function that fits batches of given times (loading, step) under a detector."""

    def make(times, *callbacks, epochs=1, logger=None, ckpt_path=None, trainer=None, **options):
        clock = Clock()
        detector = SlowStepDetector(clock=clock, **options)

        class TakesTime(Tiny):
            def training_step(self, batch, batch_idx):
                clock.now += times[batch_idx][1]
                return super().training_step(batch, batch_idx)

            def on_validation_start(self):
                clock.now += 500

            def validation_step(self, batch, batch_idx):
                clock.now += 500

        fitted = quiet_trainer(
            callbacks=[detector, *callbacks],
            logger=logger or False,
            max_epochs=epochs,
            **(trainer or {}),
        )
        loader = Slowed(clock, [loading for loading, _ in times])
        fitted.fit(TakesTime(), loader, [torch.ones(1, 2)], ckpt_path=ckpt_path)
        return detector

    return make


USUAL = [(1.0, 2.0)] * 12


def test_a_slow_batch_is_noted_with_what_was_different(run, MemoryLogger):
    """It is kept with its place, times and shape, says what took long, and goes to the loggers."""
    times = [*USUAL, (1.0, 20.0), *USUAL[:3], (30.0, 2.0), *USUAL[:2]]
    logger = MemoryLogger()
    detector = run(times, logger=logger, factor=3.0, min_steps=5)
    assert list(detector.slow_steps) == [
        SlowStep(0, 12, 12, 21.0, 1.0, 3.0, 1.0, (2, 2)),
        SlowStep(0, 16, 16, 32.0, 30.0, 3.0, 1.0, (2, 2)),
    ]
    assert [slow.cause for slow in detector.slow_steps] == ["step", "loading"]
    assert detector.count == 2
    assert logger.seen == [
        (12, {"slow_step/seconds": 21.0, "slow_step/loading_seconds": 1.0}),
        (16, {"slow_step/seconds": 32.0, "slow_step/loading_seconds": 30.0}),
    ]


def test_as_long_as_all_is_usual_nothing_is_noted(run, MemoryLogger, caplog):
    """A batch of exactly `factor` times the median is not slow."""
    logger = MemoryLogger()
    detector = run([*USUAL, (3.0, 6.0), *USUAL], logger=logger)
    assert not detector.slow_steps
    assert logger.seen == []
    assert not caplog.messages


def test_too_few_batches_judge_nothing(run):
    """Before min_steps batches were timed none is slow, and the one after may be."""
    assert not run([(1, 1), *[(1.0, 1.0)] * 9, (1, 99)], min_steps=10).slow_steps
    assert len(run([(1, 1), *[(1.0, 1.0)] * 10, (1, 99)], min_steps=10).slow_steps) == 1


def test_the_first_batch_of_an_epoch_is_not_judged(run):
    """Workers start for it, so it is neither slow nor part of the median."""
    detector = run([(400.0, 2.0), *USUAL], epochs=3, min_steps=5)
    assert not detector.slow_steps


def test_validations_between_batches_are_no_part_of_a_batch(run):
    """What happens after a batch's end and before the next is asked for is not its time."""
    detector = run(USUAL, trainer={"val_check_interval": 3}, min_steps=2)
    assert not detector.slow_steps


def test_the_median_runs(run):
    """The median is that of the last `window` batches: what was slow once is usual now."""
    times = [*[(0.0, 1.0)] * 8, *[(0.0, 10.0)] * 8]
    narrow = run(times, window=5, min_steps=5)
    assert [slow.batch_idx for slow in narrow.slow_steps] == [8, 9, 10]
    wide = run(times, window=50, min_steps=5)
    assert len(wide.slow_steps) > 3


@pytest.mark.parametrize("window", [1, 2, 5, 8])
def test_the_running_median_is_the_median(run, window):
    """At each batch, the median is that of the window before it, odd or even."""
    generator = torch.Generator().manual_seed(0)
    steps = torch.rand(40, generator=generator).tolist()
    detector = run([(0.0, step) for step in steps], factor=1.01, window=window, min_steps=1)
    # the clock adds up to thousands, so that the last digits of a difference are lost
    for slow in detector.slow_steps:
        first = max(1, slow.batch_idx - window)
        expected = statistics.median(steps[first : slow.batch_idx])
        assert slow.median_seconds == pytest.approx(expected, abs=1e-9)
    assert len(detector.slow_steps) > 5


def test_the_list_is_bounded_and_the_count_is_not(run):
    """The newest are kept, and all are counted."""
    times = [*USUAL, *[(1.0, 2.0), (1.0, 2.0), (1.0, 90.0)] * 5]
    detector = run(times, max_records=2)
    assert [slow.batch_idx for slow in detector.slow_steps] == [23, 26]
    assert detector.count == 5


def test_warnings_keep_their_distance(run, caplog):
    """The log tells of one in `warn_interval` seconds, and how many it did not tell of."""
    times = [*USUAL, *[(1.0, 2.0), (1.0, 2.0), (1.0, 90.0)] * 5]
    run(times, warn_interval=200.0)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    first, second = caplog.messages
    assert first.startswith(
        "slow step: batch 14 of epoch 0 took 91 s, 30.3 times the median of 3 s"
    )
    assert "more than usual of it for the step" in first
    assert first.endswith("usual are 1 s)")
    assert second.startswith("slow step: batch 23 of epoch 0")
    assert second.endswith("; 2 more since the last of these messages")
    caplog.clear()
    run(times, warn_interval=math.inf)
    assert not caplog.messages


def test_a_resumed_run_knows_the_slow_batches_and_times_anew(run, tmp_path):
    """What was noted comes back from a checkpoint; new bounds count, and the median starts anew."""

    class Saves(Callback):
        def on_train_end(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "cut.ckpt")

    times = [*USUAL, (1.0, 20.0), (1.0, 2.0), (1.0, 20.0)]
    first = run(times, Saves())
    resumed = run([(10.0, 20.0)] * 15, epochs=2, ckpt_path=tmp_path / "cut.ckpt", max_records=1)
    assert list(resumed.slow_steps) == list(first.slow_steps)[1:]
    assert resumed.count == first.count == 2


def test_a_new_training_forgets(run, quiet_trainer, Tiny, batches):
    """A fit of another module starts with nothing noted."""
    detector = run([*USUAL, (1.0, 20.0)])
    assert detector.count == 1
    quiet_trainer(callbacks=[detector]).fit(Tiny(), batches(2))
    assert (detector.count, list(detector.slow_steps)) == (0, [])


def test_a_checkpoint_takes_its_state(run, tmp_path):
    """The state is plain data: a saver beside it can save it, shapes included."""
    saver = ModelCheckpoint(tmp_path, every_n_train_steps=14)
    run([*USUAL, (1.0, 20.0), (1.0, 2.0)], saver, trainer={"enable_checkpointing": True})
    states = torch.load(saver.best_model_path, weights_only=True)["callbacks"]
    [state] = [state for key, state in states.items() if key.startswith("SlowStep")]
    assert state["count"] == 1
    assert state["slow_steps"][0]["batch_shape"] == (2, 2)
