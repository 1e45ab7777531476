"""MetricAggregator: how the values of one name are kept and reduced."""

from __future__ import annotations

import math

import pytest
import torch

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.aggregator import MetricAggregator

CALL = (False, None, None, None, "mean", True)


def slot_of(reduce_fx="mean", **options) -> MetricAggregator:
    return MetricAggregator("loss", CALL, reduce_fx=reduce_fx, **options)


def filled(values, weights=None, reduce_fx="mean") -> MetricAggregator:
    slot = slot_of(reduce_fx)
    for value, weight in zip(values, weights or [1] * len(values), strict=True):
        slot.add(torch.tensor(value), weight)
    return slot


@pytest.mark.parametrize("reduce_fx", ["median", "", None, 3, ["mean"]])
def test_an_unknown_reduction_is_refused(reduce_fx: object) -> None:
    """A reduction that is no name and no function is a MetricError that lists the names."""
    with pytest.raises(MetricError) as caught:
        slot_of(reduce_fx)
    assert f"log('loss', reduce_fx={reduce_fx!r})" in str(caught.value)
    assert "mean, sum, min, max" in str(caught.value)


def test_reducing_nothing_is_refused() -> None:
    """Asking for the reduction of an epoch in which nothing was logged is a MetricError."""
    with pytest.raises(MetricError, match=r"nothing was logged under 'loss'"):
        slot_of().reduce()


@pytest.mark.parametrize("bad", [torch.ones(2), {"a": 1}, None, "x", torch.ones(0)])
def test_a_function_that_gives_no_number_is_refused(bad: object) -> None:
    """A reduce_fx must compute one number."""
    with pytest.raises(MetricError, match=r"reduce_fx that computes .*must compute one number"):
        filled([1.0], reduce_fx=lambda _: bad).reduce()


@pytest.mark.parametrize(
    ("reduce_fx", "expected"),
    [
        ("mean", (1 * 1 + 5 * 2 + 3 * 5) / 8),
        ("avg", (1 * 1 + 5 * 2 + 3 * 5) / 8),
        (torch.mean, (1 * 1 + 5 * 2 + 3 * 5) / 8),
        ("sum", 9.0),
        (torch.sum, 9.0),
        ("min", 1.0),
        (torch.min, 1.0),
        ("max", 5.0),
        (torch.max, 5.0),
        (torch.median, None),
        (lambda values: values[-1], 3.0),
    ],
)
def test_reductions(reduce_fx: object, expected: float | None) -> None:
    """Only a mean is weighted; torch's functions stand for the names; others get all values."""
    if expected is None:
        reduce_fx, expected = (lambda values: values.median()), 3.0
    slot = filled([1.0, 5.0, 3.0], [1, 2, 5], reduce_fx)
    assert slot.reduce().item() == expected
    assert slot.reduce().shape == ()


@pytest.mark.parametrize("count", [1, 255, 256, 257, 700])
@pytest.mark.parametrize("reduce_fx", ["mean", "sum", "min", "max", lambda values: values.std()])
def test_more_values_than_one_chunk(count: int, reduce_fx: object) -> None:
    """However many values come, the reduction is that of all of them in 64 bits."""
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(count, generator=generator)
    weights = torch.randint(1, 9, (count,), generator=generator)
    slot = slot_of(reduce_fx)
    for value, weight in zip(values, weights.tolist(), strict=True):
        slot.add(value.clone(), weight)
    exact = values.double()
    expected = {
        "mean": (exact * weights).sum() / weights.sum(),
        "sum": exact.sum(),
        "min": exact.min(),
        "max": exact.max(),
    }.get(reduce_fx if isinstance(reduce_fx, str) else "")
    if expected is None:
        if count == 1:
            return  # no deviation of one value
        expected = exact.std()
    assert slot.reduce().item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_mean_does_not_drift() -> None:
    """Sums are kept in 64 bits: a million small values beside a large one are not lost."""
    slot = slot_of("mean")
    slot.add(torch.tensor(2.0**24), 1)
    for _ in range(1024):
        slot.add(torch.tensor(1.0), 1)
    assert slot.reduce().item() == pytest.approx((2**24 + 1024) / 1025, rel=1e-7)


def test_reducing_does_not_end_the_epoch() -> None:
    """A reduction in the middle of an epoch can be followed by more values."""
    slot = filled([1.0, 2.0])
    assert slot.reduce().item() == 1.5
    slot.add(torch.tensor(6.0), 1)
    assert slot.reduce().item() == 3.0


def test_a_reset_begins_anew() -> None:
    """After a reset nothing of the last epoch is left."""
    for reduce_fx in ("mean", "sum", "min", "max", lambda values: values[0]):
        slot = filled([7.0, 9.0], [3, 4], reduce_fx)
        slot.reduce()
        slot.reset()
        assert not slot.has_values
        slot.add(torch.tensor(8.0), 2)
        assert slot.reduce().item() == 8.0


@pytest.mark.parametrize("reduce_fx", ["mean", "sum", "min", "max"])
def test_nan_and_infinity_pass_through(reduce_fx: str) -> None:
    """A NaN is never hidden by a reduction, nor is an infinite value."""
    assert math.isnan(filled([1.0, math.nan, 2.0], reduce_fx=reduce_fx).reduce().item())
    values = [1.0, -math.inf if reduce_fx == "min" else math.inf]
    assert math.isinf(filled(values, reduce_fx=reduce_fx).reduce().item())


def test_values_of_mixed_types() -> None:
    """Integers, bools and floats of all widths stand together under one name."""
    slot = slot_of("sum")
    for value in (
        torch.tensor(1),
        torch.tensor(True),
        torch.tensor(0.5, dtype=torch.float16),
        torch.tensor(0.25, dtype=torch.bfloat16),
        torch.tensor(0.125, dtype=torch.float64),
    ):
        slot.add(value, 1)
    assert slot.reduce().item() == 2.875


@pytest.mark.parametrize(
    ("on_step", "on_epoch", "step_key", "epoch_key"),
    [
        (True, False, "loss", "loss"),
        (False, True, "loss", "loss"),
        (True, True, "loss_step", "loss_epoch"),
    ],
)
def test_names_fork_only_where_there_are_both(on_step, on_epoch, step_key, epoch_key) -> None:
    """A value that is handed on by step and by epoch has two names; otherwise its own."""
    slot = slot_of(on_step=on_step, on_epoch=on_epoch)
    assert (slot.step_key, slot.epoch_key) == (step_key, epoch_key)


@pytest.mark.parametrize("reduce_fx", ["mean", "sum", "min", "max", lambda v: v.sum()])
@pytest.mark.parametrize("count", [0, 3, 300])
def test_the_state_goes_on_where_it_was(reduce_fx: object, count: int) -> None:
    """A slot that takes another's state reduces to the same value, bit for bit."""
    values = torch.randn(600, generator=torch.Generator().manual_seed(1))
    whole, first, second = slot_of(reduce_fx), slot_of(reduce_fx), slot_of(reduce_fx)
    for value in values:
        whole.add(value, 2)
    for value in values[:count]:
        first.add(value, 2)
    second.load_state_dict(first.state_dict(), torch.device("cpu"))
    for value in values[count:]:
        second.add(value, 2)
    assert torch.equal(second.reduce(), whole.reduce())


class Counting:
    """The least that is a metric object."""

    def __init__(self, value: object = 0.5) -> None:
        self.value, self.resets = value, 0

    def update(self, *args: object) -> None: ...

    def compute(self) -> object:
        return self.value

    def reset(self) -> None:
        self.resets += 1


def test_a_metric_object_reduces_itself() -> None:
    """With a metric object the epoch's value is what it computes, and a reset resets it."""
    slot, metric = slot_of(), Counting(0.75)
    slot.add_metric(metric)
    assert slot.has_values
    assert slot.reduce().item() == 0.75
    slot.reset()
    assert metric.resets == 1
    assert not slot.has_values


@pytest.mark.parametrize("bad", [torch.ones(3), {"a": 1.0}, [1.0], None])
def test_a_metric_object_that_computes_several(bad: object) -> None:
    """A metric object must compute one number; the message says what it computed."""
    slot = slot_of()
    slot.add_metric(Counting(bad))
    with pytest.raises(MetricError, match=r"log\('loss'\).*a metric object that computes"):
        slot.reduce()
    with pytest.raises(MetricError, match=r"must compute one number"):
        slot.latest_of_metric()


@pytest.mark.parametrize("value", [torch.tensor(3), torch.tensor(True), torch.tensor([7])])
def test_a_whole_number_is_shown_as_a_float(value) -> None:
    """In the type of Python's numbers, as in Lightning; a float64 keeps its own."""
    slot = slot_of()
    slot.add(value, 1)
    assert slot.value.dtype is torch.float32
    assert slot.value == float(value)
    slot.add(torch.tensor(0.5, dtype=torch.float64), 1)
    assert slot.value.dtype is torch.float64
