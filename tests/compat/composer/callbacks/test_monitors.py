"""The monitors that have Composer's names and log what it logs."""

from __future__ import annotations

import time

import pytest
import torch

from trainer_hooks import Callback, Evaluator, Module
from trainer_hooks.callbacks import RuntimeEstimator
from trainer_hooks.compat.composer.callbacks import (
    GradMonitor,
    LRMonitor,
    OptimizerMonitor,
    SpeedMonitor,
    SystemMetricsMonitor,
)
from trainer_hooks.testing import TinyModule


class Reporting(torch.optim.SGD):
    """Says something of each parameter, as Composer's optimizers do."""

    def report_per_parameter_metrics(self, param, name, metrics):
        metrics[f"l2_norm/param/{name}"] = torch.linalg.vector_norm(param.detach())
        return metrics


class Net(Module):
    """Steps with a gradient that is the mean of the batch, at a rate that is halved each step."""

    optimizer_class = torch.optim.SGD

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx):
        return (self.weight * batch.mean(dim=0)).sum()

    def configure_optimizers(self):
        optimizer = self.optimizer_class(self.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def run(quiet_trainer, MemoryLogger, callback, module, *loaders, **options):
    logger = MemoryLogger()
    options = {"log_every_n_steps": 1, **options}
    quiet_trainer(callbacks=[callback], logger=logger, **options).fit(module, *loaders)
    return logger.seen


def of(seen, prefix):
    """Return (step, its metrics of that prefix) wherever there are some."""
    found = [(s, {n: v for n, v in m.items() if n.startswith(prefix)}) for s, m in seen]
    return [(step, metrics) for step, metrics in found if metrics]


def test_lr_monitor(quiet_trainer, MemoryLogger, batches):
    """The rates are those after the scheduler's step, under the optimizer's class and group."""
    seen = run(quiet_trainer, MemoryLogger, LRMonitor(), Net(), batches(3))
    assert of(seen, "lr-") == [
        (0, {"lr-SGD/group0": 0.25}),
        (1, {"lr-SGD/group0": 0.125}),
        (2, {"lr-SGD/group0": 0.0625}),
    ]


def test_grad_monitor(quiet_trainer, MemoryLogger, batches):
    """The norms are of the clipped gradients of a whole window, in all and by parameter."""
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0}
    seen = run(quiet_trainer, MemoryLogger, GradMonitor(True), Net(), batches(4), **options)
    found = of(seen, "grad_l2_norm") + of(seen, "layer_grad")
    assert [step for step, _ in found] == [0, 1, 0, 1]
    for _, metrics in found:
        assert list(metrics.values()) == pytest.approx([1.0], rel=1e-4)
    assert {n for _, m in found for n in m} == {"grad_l2_norm/step", "layer_grad_l2_norm/weight"}
    seen = run(quiet_trainer, MemoryLogger, GradMonitor(), Net(), batches(1))
    assert of(seen, "grad_l2_norm") == [(0, {"grad_l2_norm/step": pytest.approx(2**0.5)})]
    assert not of(seen, "layer_grad")


@pytest.mark.parametrize("monitor", [GradMonitor(True), OptimizerMonitor()], ids=["grad", "opt"])
def test_nothing_is_computed_where_nothing_is_logged(
    quiet_trainer, MemoryLogger, batches, host_copies, monitor
):
    """No norm is copied from the device in steps that are not logged."""
    with host_copies:
        run(quiet_trainer, MemoryLogger, LRMonitor(), Net(), batches(4), log_every_n_steps=9)
    with type(host_copies)() as copies:
        run(quiet_trainer, MemoryLogger, monitor, Net(), batches(4), log_every_n_steps=9)
    assert copies.count == host_copies.count


@pytest.mark.parametrize("interval", [2, "2ba", lambda clock: clock.steps % 2 == 0])
def test_optimizer_monitor(quiet_trainer, MemoryLogger, batches, interval):
    """At its own interval it logs the norms of the gradients, whatever the loggers' is."""
    monitor = OptimizerMonitor(batch_log_interval=interval)
    seen = run(quiet_trainer, MemoryLogger, monitor, Net(), batches(4), log_every_n_steps=50)
    assert [step for step, _ in of(seen, "l2_norm")] == [1, 3]
    norms = {"l2_norm/grad/global": 2 * 2**0.5, "l2_norm/grad/weight": 2 * 2**0.5}
    assert of(seen, "l2_norm")[0][1] == pytest.approx(norms)


@pytest.mark.parametrize("is_asked", [True, False])
def test_optimizer_is_asked(quiet_trainer, MemoryLogger, batches, is_asked):
    """What the optimizer says of each parameter is logged, unless that is switched off."""
    net = Net()
    net.optimizer_class = Reporting
    seen = run(quiet_trainer, MemoryLogger, OptimizerMonitor(is_asked, 1), net, batches(1))
    found = of(seen, "l2_norm/param")
    norm = float(torch.tensor([2.5, 3.5]).norm())  # the step was made
    assert found == ([(0, {"l2_norm/param/weight": pytest.approx(norm)})] if is_asked else [])


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


class Timed(TinyModule):
    """Trains for two seconds a batch and validates for a hundred."""

    flops_per_batch = 10

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_batch_start(self, batch, batch_idx):
        self.clock[0] += 2

    def on_validation_batch_start(self, batch, batch_idx):
        self.clock[0] += 50

    def num_tokens(self, batch):
        return 8


def test_speed_monitor(quiet_trainer, MemoryLogger, clock):
    """The rates begin when the window is full, and leave validations out; the times do not."""
    monitor = SpeedMonitor(2, gpu_flops_available=50, time_unit="seconds")
    seen = run(quiet_trainer, MemoryLogger, monitor, Timed(clock), max_epochs=2)
    rates = of(seen, "throughput/")
    assert [step for step, _ in rates] == [2, 3, 4, 5]
    device = {"batches": 0.5, "samples": 1.0, "tokens": 4.0, "flops": 5.0}
    expected = {f"throughput/device/{name}_per_sec": rate for name, rate in device.items()}
    expected.update({f"throughput/{name}_per_sec": rate for name, rate in device.items()})
    expected["throughput/device/mfu"] = 0.1
    for _, metrics in rates:
        assert metrics == pytest.approx(expected)
    times = of(seen, "time/")
    assert times[0][1] == pytest.approx({"time/train": 2, "time/val": 0, "time/total": 2})
    assert times[-1][1] == pytest.approx({"time/train": 12, "time/val": 100, "time/total": 112})


def test_runtime_estimator(quiet_trainer, MemoryLogger, clock):
    """The rest is estimated by the pace so far, with as many validations as are to come."""
    module = Timed(clock)
    monitor = RuntimeEstimator(time_unit="seconds")
    seen = run(quiet_trainer, MemoryLogger, monitor, module, max_epochs=4)
    found = [(step, m["time/remaining_estimate"]) for step, m in of(seen, "time/remaining")]
    assert found[0] == (1, pytest.approx(2 * 10))  # no validation is known of yet
    assert found[2] == (3, pytest.approx(2 * 8 + 3 * 100))
    assert found[-1] == (11, pytest.approx(100))  # the last validation is to come


class TwoTimed(Timed):
    """Validates two loaders: two batches of 50 s each epoch, and two of 500 s now and then."""

    interval = "3ep"

    def on_validation_batch_start(self, batch, batch_idx, dataloader_idx):
        self.clock[0] += 50 if dataloader_idx == 0 else 500

    def on_validation_batch_end(self, *args):
        pass

    def val_dataloader(self):
        often, seldom = super().val_dataloader(), super().val_dataloader()
        return [Evaluator("often", often), Evaluator("seldom", seldom, eval_interval=self.interval)]


def test_runtime_estimator_tells_loaders_apart(quiet_trainer, MemoryLogger, clock):
    """Each validation loader counts as often as it comes, and one with an interval at the end."""
    monitor = RuntimeEstimator(time_unit="seconds")
    seen = run(quiet_trainer, MemoryLogger, monitor, TwoTimed(clock), max_epochs=8)
    found = {step: m["time/remaining_estimate"] for step, m in of(seen, "time/remaining")}
    assert found[3] == pytest.approx(2 * 20 + 7 * 100)  # nothing is known of the other yet
    # after epochs 3, 6 and 8; the batch is the first after the one of epoch 3
    assert found[9] == pytest.approx(2 * 14 + 5 * 100 + 2 * 1000)
    assert found[23] == pytest.approx(100 + 1000)


def test_runtime_estimator_counts_a_second_validation(quiet_trainer, MemoryLogger, clock):
    """What a callback validates at the end of an epoch belongs to the epoch's validation."""

    class Again(Callback):
        def on_train_epoch_end(self, trainer, module):
            trainer.validate_again("again_")

    options = {"callbacks": [monitor := RuntimeEstimator(time_unit="seconds"), Again()]}
    logger = MemoryLogger()
    trainer = quiet_trainer(logger=logger, log_every_n_steps=1, max_epochs=4, **options)
    trainer.fit(Timed(clock))
    assert monitor.time_unit == "seconds"
    found = {s: m["time/remaining_estimate"] for s, m in of(logger.seen, "time/remaining")}
    assert found[3] == pytest.approx(2 * 8 + 3 * 200)


def test_system_metrics(quiet_trainer, MemoryLogger):
    """Processor, memory, disk and network are logged at the number of trained batches."""
    logger = MemoryLogger()
    trainer = quiet_trainer(callbacks=[SystemMetricsMonitor()], logger=logger, log_every_n_steps=2)
    trainer.fit(TinyModule())
    trainer.test(TinyModule(), verbose=False)
    (_, first), *_ = [(s, m) for s, m in logger.seen if "cpu_percentage" in m]
    assert {"cpu_memory_total", "cpu_memory_percent", "disk_memory_used", "network_bytes_sent"} <= {
        *first
    }
    assert first["cpu_memory_total"] > 0
    # a batch in training, one in the validation, and one in the test
    assert [s for s, m in logger.seen if "cpu_percentage" in m] == [1, 3, 3]


class Driver:
    """Stands for a GPU's driver."""

    def read(self):
        return {
            "nvml.utilization_percent": 70.0,
            "nvml.memory_used_bytes": 1.0,
            "nvml.memory_total_bytes": 4.0,
        }

    def close(self):
        pass


@pytest.mark.parametrize("is_all", [True, False])
def test_system_metrics_of_a_device(quiet_trainer, MemoryLogger, monkeypatch, is_all):
    """A device's values have Composer's names, each as smallest and largest."""
    monitor = SystemMetricsMonitor(is_all)
    monkeypatch.setattr(monitor, "_nvml", Driver())
    seen = run(quiet_trainer, MemoryLogger, monitor, TinyModule())
    metrics = next(m for _, m in seen if "cpu_percentage" in m)
    found = {n: v for n, v in metrics.items() if n.endswith("_rank_0")}
    each = {"gpu_percentage_rank_0": 70.0, "memory_percentage_rank_0": 25.0}
    expected = {f"{p}_{n}": v for p in ("min", "max") for n, v in each.items()}
    assert found == {**expected, **(each if is_all else {})}
