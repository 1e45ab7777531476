from __future__ import annotations

import time

import pytest

from trainer_hooks.callbacks import ThroughputMonitor
from trainer_hooks.errors import CallbackError, MetricError
from trainer_hooks.testing import TinyModule


def size(batch):
    return len(batch[0])


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


class Timed(TinyModule):
    """Trains for two seconds a batch and validates for a hundred."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_batch_start(self, batch, batch_idx):
        self.clock[0] += 2

    def on_validation_batch_start(self, batch, batch_idx):
        self.clock[0] += 100

    def on_test_batch_start(self, batch, batch_idx):
        self.clock[0] += 5

    def on_predict_batch_start(self, batch, batch_idx):
        self.clock[0] += 4


@pytest.mark.parametrize("returned", [None, -1, 2.5, True])
def test_a_function_that_counts_wrongly(bare, returned):
    """What is no whole number of samples is an error that names the function."""
    monitor = ThroughputMonitor(lambda batch: returned)
    with pytest.raises(MetricError, match=f"{returned!r} returned by batch_size_fn"):
        bare(monitor).fit(TinyModule())


def test_operations_that_are_no_number(bare):
    """A flops_per_batch that is no number is an error that names the module."""
    module = TinyModule()
    module.flops_per_batch = "many"
    with pytest.raises(CallbackError, match="flops_per_batch 'many' of TinyModule"):
        bare(ThroughputMonitor(size)).fit(module)


def logged(logger, stage):
    return [(step, m) for step, m in logger.seen if any(name.startswith(stage) for name in m)]


def test_names_and_values(bare, clock, MemoryLogger):
    """Training is logged with Lightning's names; validations in it take none of its time."""
    logger = MemoryLogger()
    monitor = ThroughputMonitor(size, lambda batch: 10 * size(batch), available_flops=100)
    module = Timed(clock)
    module.flops_per_batch = 50
    bare(monitor, logger=logger, log_every_n_steps=2, max_epochs=2).fit(module)
    found = logged(logger, "train/time")
    assert [step for step, _ in found] == [1, 3, 5]
    assert found[-1][1] == {
        "train/time": 12.0,
        "train/batches": 6,
        "train/samples": 12,
        "train/lengths": 120,
        "train/device/batches_per_sec": 0.5,
        "train/device/samples_per_sec": 1.0,
        "train/device/items_per_sec": 10.0,
        "train/device/flops_per_sec": 25.0,
        "train/device/mfu": 0.25,
        "epoch": 1,
    }
    validated = logged(logger, "validate")
    assert [step for step, _ in validated] == [2, 4]
    assert validated[-1][1]["validate/device/batches_per_sec"] == 0.01


def test_the_other_stages(bare, clock, MemoryLogger):
    """Test and prediction are logged by their own batches, with a separator of one's own."""
    logger = MemoryLogger()
    monitor = ThroughputMonitor(size, separator="|")
    trainer = bare(monitor, logger=logger, log_every_n_steps=1)
    trainer.test(Timed(clock), verbose=False)
    trainer.predict(Timed(clock))
    assert logged(logger, "test|time")[1] == (
        2,
        {
            "test|time": 10.0,
            "test|batches": 2,
            "test|samples": 4,
            "test|device|batches_per_sec": 0.2,
            "test|device|samples_per_sec": 0.4,
        },
    )
    assert logged(logger, "predict")[1][1]["predict|device|batches_per_sec"] == 0.25


def test_operations_by_the_batch(bare, clock, MemoryLogger):
    """flops_per_batch may be a function of the batch; a processor has no mfu."""
    logger = MemoryLogger()
    module = Timed(clock)
    module.flops_per_batch = lambda batch: 7 * size(batch)
    bare(ThroughputMonitor(size), logger=logger, log_every_n_steps=3).fit(module)
    ((_, metrics),) = logged(logger, "train/time")
    assert metrics["train/device/flops_per_sec"] == 7.0
    assert "train/device/mfu" not in metrics


def test_the_sanity_check_does_not_count(bare, clock, MemoryLogger):
    """Batches that are run to see whether validation works are none of validation."""
    monitor = ThroughputMonitor(size)
    bare(monitor, num_sanity_val_steps=2).fit(Timed(clock))
    assert monitor.state_dict()["batches"] == {"train": 3, "validate": 2, "test": 0, "predict": 0}


def test_counts_go_on_after_a_resume(bare, clock, MemoryLogger, tmp_path):
    """A resumed run counts on from where the checkpoint was saved, time included."""
    trainer = bare(ThroughputMonitor(size))
    trainer.fit(Timed(clock))
    trainer.save_checkpoint(tmp_path / "1.ckpt")
    logger = MemoryLogger()
    trainer = bare(ThroughputMonitor(size), logger=logger, max_epochs=2, log_every_n_steps=3)
    trainer.fit(Timed(clock), ckpt_path=tmp_path / "1.ckpt")
    ((step, metrics),) = logged(logger, "train/time")
    assert (step, metrics["train/time"], metrics["train/samples"]) == (5, 12.0, 12)
    assert metrics["train/device/batches_per_sec"] == 0.5
