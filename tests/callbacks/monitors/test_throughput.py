from __future__ import annotations

import pytest
import torch

from trainer_hooks.callbacks import Throughput, measure_flops
from trainer_hooks.callbacks.monitors.throughput import available_flops, peak_flops_of
from trainer_hooks.errors import MetricError


def test_a_count_that_falls():
    """Counts are since the start, so one that falls is a mistake of the caller's."""
    throughput = Throughput()
    throughput.update(time=2.0, batches=2, samples=4)
    with pytest.raises(MetricError, match=r"time 1.0 given to Throughput.update: it was 2.0"):
        throughput.update(time=1.0, batches=3, samples=6)
    with pytest.raises(MetricError, match="samples 3 given"):
        throughput.update(time=3.0, batches=3, samples=3)


def test_rates_are_of_the_window():
    """Rates compare the window's ends; what was before it does not count."""
    throughput = Throughput(window_size=3)
    assert throughput.compute() == {}
    throughput.update(time=1.0, batches=1, samples=2, lengths=20)
    assert throughput.compute() == {"time": 1.0, "batches": 1, "samples": 2, "lengths": 20}
    for second, batches in ((101.0, 2), (102.0, 4), (103.0, 6)):
        throughput.update(time=second, batches=batches, samples=2 * batches, lengths=20 * batches)
    assert throughput.compute() == {
        "time": 103.0,
        "batches": 6,
        "samples": 12,
        "lengths": 120,
        "device/batches_per_sec": 2.0,
        "device/samples_per_sec": 4.0,
        "device/items_per_sec": 40.0,
    }
    throughput.reset()
    assert throughput.compute() == {}


def test_operations():
    """Operations are those between the window's ends; several devices do each the same."""
    throughput = Throughput(available_flops=100, world_size=2, separator="|")
    throughput.update(time=0.0, batches=0, samples=0, flops=999)
    throughput.update(time=2.0, batches=1, samples=1, flops=80)
    assert throughput.compute() == {
        "time": 2.0,
        "batches": 1,
        "samples": 1,
        "batches_per_sec": 1.0,
        "device|batches_per_sec": 0.5,
        "samples_per_sec": 1.0,
        "device|samples_per_sec": 0.5,
        "flops_per_sec": 80.0,
        "device|flops_per_sec": 40.0,
        "device|mfu": 0.4,
    }


@pytest.mark.parametrize(
    ("name", "dtype", "uses_tf32", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", torch.bfloat16, False, 989.4e12),
        ("NVIDIA H100 PCIe", torch.float16, False, 756e12),
        ("NVIDIA H100 NVL", torch.float32, False, 60e12),
        ("NVIDIA H200", torch.float32, True, 494.7e12),
        ("NVIDIA A100-SXM4-40GB", torch.float32, False, 19.5e12),
        ("NVIDIA A100-SXM4-40GB", torch.float32, True, 156e12),
        ("NVIDIA A10G", torch.bfloat16, False, 70e12),
        ("Tesla V100-SXM2-16GB", torch.float16, False, 125e12),
        ("Tesla V100-SXM2-16GB", torch.bfloat16, False, None),
        ("Tesla V100-SXM2-16GB", torch.float32, True, 15.7e12),
        ("Tesla T4", torch.float16, False, 65e12),
        ("NVIDIA L4", torch.bfloat16, False, 121e12),
        ("NVIDIA L40S", torch.bfloat16, False, 362e12),
        ("NVIDIA GeForce RTX 3090 Ti", torch.float32, False, 40e12),
        ("NVIDIA GeForce RTX 4090", torch.int8, False, None),
        ("NVIDIA GeForce GTX 1080", torch.float32, False, None),
    ],
)
def test_the_table_of_peaks(name, dtype, uses_tf32, peak):
    """A device is found by the words of its name, the most exact entry counts."""
    assert peak_flops_of(name, dtype, uses_tf32=uses_tf32) == peak


def test_a_processor_has_no_peak():
    """There is no peak of a processor."""
    assert available_flops(torch.device("cpu"), torch.float32) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_this_devices_peak():
    """The CUDA device of this machine is asked for its name."""
    device = torch.device("cuda", 0)
    expected = peak_flops_of(torch.cuda.get_device_name(0), torch.bfloat16)
    assert available_flops(device, torch.bfloat16) == expected


def test_operations_of_a_model():
    """A linear layer multiplies twice as often in the backward, and nothing is left behind."""
    model = torch.nn.Linear(8, 4)
    inputs = torch.randn(16, 8, requires_grad=True)
    before = torch.get_rng_state()
    forward = 2 * 16 * 8 * 4
    assert measure_flops(model, lambda: torch.dropout(model(inputs), 0.5, True)) == forward
    total = measure_flops(model, lambda: model(inputs), lambda outputs: outputs.sum())
    assert total == 3 * forward
    assert model.weight.grad is None
    assert torch.equal(before, torch.get_rng_state())


def test_operations_without_memory():
    """A model on the meta device is counted without computing anything."""
    with torch.device("meta"):
        model, inputs = torch.nn.Linear(10_000, 10_000), torch.randn(10_000, 10_000)
    assert measure_flops(model, lambda: model(inputs)) == 2 * 10_000**3
