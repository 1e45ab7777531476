from __future__ import annotations

import builtins
from types import SimpleNamespace

import pytest
import torch

from trainer_hooks.callbacks import DeviceStatsMonitor
from trainer_hooks.callbacks import device_statistics as device_stats
from trainer_hooks.errors import UsageError
from trainer_hooks.testing import TinyModule

CPU = ["cpu_percent", "cpu_swap_percent", "cpu_vm_percent"]


def test_without_a_logger(bare):
    """A fit without a logger is refused; a test, and a dry run, are not."""
    with pytest.raises(UsageError, match=r"without a logger: .*Pass one"):
        bare(DeviceStatsMonitor()).fit(TinyModule())
    bare(DeviceStatsMonitor()).test(TinyModule(), verbose=False)
    bare(DeviceStatsMonitor(), fast_dev_run=True).fit(TinyModule())


def test_without_psutil(bare, MemoryLogger, monkeypatch):
    """Where psutil is missing, the error names the extra to install."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "psutil":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'trainer-hooks\[monitor\]'"):
        bare(DeviceStatsMonitor(), logger=MemoryLogger()).fit(TinyModule())
    bare(DeviceStatsMonitor(cpu_stats=False), logger=MemoryLogger()).fit(TinyModule())


def logged(logger):
    """What was logged of the device: (step, hook, names)."""
    found = []
    for step, metrics in logger.seen:
        names = [name for name in metrics if name.startswith("DeviceStatsMonitor.")]
        if names:
            hooks = {name.partition("/")[0].partition(".")[2] for name in names}
            found.append((step, *hooks, sorted(name.partition("/")[2] for name in names)))
    return found


@pytest.mark.parametrize("cpu_stats", [None, True])
def test_the_processor_is_logged_where_metrics_are(bare, MemoryLogger, cpu_stats):
    """Every second of three batches is logged, before and after, with Lightning's names."""
    logger = MemoryLogger()
    trainer = bare(DeviceStatsMonitor(cpu_stats), logger=logger, log_every_n_steps=2, max_epochs=2)
    trainer.fit(TinyModule())
    train = [entry for entry in logged(logger) if "train" in entry[1]]
    assert train == [
        (step, f"on_train_batch_{moment}", CPU) for step in (1, 3, 5) for moment in ("start", "end")
    ]
    values = [
        value
        for _, metrics in logger.seen
        for name, value in metrics.items()
        if name.endswith("cpu_vm_percent")
    ]
    assert all(0 < value <= 100 for value in values)


def test_windows_count(bare, MemoryLogger):
    """With accumulation, it is the batches that end a window."""
    logger = MemoryLogger()
    bare(DeviceStatsMonitor(), logger=logger, log_every_n_steps=1, accumulate_grad_batches=2).fit(
        TinyModule()
    )
    train = [entry[:2] for entry in logged(logger) if "train" in entry[1]]
    assert train == [
        (step, f"on_train_batch_{moment}") for step in (0, 1) for moment in ("start", "end")
    ]


def test_evaluations(bare, MemoryLogger):
    """Every second batch of validation and test is logged at its metrics' step, no sanity check."""
    logger = MemoryLogger()
    monitor = DeviceStatsMonitor()
    trainer = bare(monitor, logger=logger, log_every_n_steps=2, num_sanity_val_steps=2)
    trainer.fit(TinyModule())
    assert [entry[:2] for entry in logged(logger) if "val" in entry[1]] == [
        (2, "on_validation_batch_start"),
        (2, "on_validation_batch_end"),
    ]
    logger.seen.clear()
    trainer.test(TinyModule(), verbose=False)
    assert [entry[:2] for entry in logged(logger)] == [
        (3, "on_test_batch_start"),
        (3, "on_test_batch_end"),
    ]


def test_switched_off(bare, MemoryLogger):
    """cpu_stats=False logs nothing on the processor."""
    logger = MemoryLogger()
    bare(DeviceStatsMonitor(False), logger=logger, log_every_n_steps=1).fit(TinyModule())
    assert logged(logger) == []


def test_what_the_driver_says(monkeypatch):
    """NVML is asked for the device that torch means; what it does not support is left out."""

    class NotSupported(Exception):
        pass

    def unsupported(handle):
        raise NotSupported

    closed = []
    nvml = SimpleNamespace(
        NVMLError_NotSupported=NotSupported,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: closed.append(True),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=3, total=9),
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=50),
        nvmlDeviceGetTemperature=lambda handle, sensor: 40,
        nvmlDeviceGetPowerUsage=unsupported,
    )
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1-2")
    )
    reader = device_stats.Nvml.of(torch.device("cuda", 0))
    assert reader.read() == {
        "nvml.memory_used_bytes": 3.0,
        "nvml.memory_total_bytes": 9.0,
        "nvml.utilization_percent": 50.0,
        "nvml.temperature_celsius": 40.0,
    }
    reader.close()
    assert closed == [True]
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert device_stats.Nvml.of(torch.device("cuda", 0)) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device(bare, MemoryLogger):
    """On a CUDA device torch's memory counters are logged, and the processor's if asked for."""
    logger = MemoryLogger()
    bare(
        DeviceStatsMonitor(True), logger=logger, log_every_n_steps=1, accelerator="cuda", devices=1
    ).fit(TinyModule())
    names = logged(logger)[0][2]
    assert "allocated_bytes.all.current" in names
    assert set(CPU) <= set(names)
