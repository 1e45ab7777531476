"""Optimizers and schedulers; expected is what `composer/optim` (0.32.1) computes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from trainer_hooks.compat.composer import Time, Timestamp, optim


def factors(scheduler, *, batches=8, epochs=2, ssr=1.0):
    """The factors of a training of two epochs of four batches, before each batch."""
    found = []
    for batch in range(batches):
        state = SimpleNamespace(
            max_duration=Time(epochs, "ep"),
            dataloader_len=Time(4, "ba"),
            timestamp=Timestamp(epoch=batch // 4, batch=batch, sample=batch * 2),
        )
        found.append(scheduler(state, ssr))
    return found


def half_wave(share):
    return (1 + math.cos(share * math.pi)) / 2


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        (optim.StepScheduler("1ep", 0.5), [1] * 4 + [0.5] * 4),
        (optim.MultiStepScheduler(["2ba", "1ep"], 0.5), [1, 1, 0.5, 0.5] + [0.25] * 4),
        (optim.ConstantScheduler(0.5, "1ep"), [0.5] * 4 + [1] * 4),
        (optim.LinearScheduler(), [1 - i / 8 for i in range(8)]),
        (optim.LinearScheduler(0, 1, "8sp"), [0, 0.25, 0.5, 0.75, 1, 1, 1, 1]),
        (optim.ExponentialScheduler(0.5, "2ba"), [0.5 ** (i / 2) for i in range(8)]),
        (optim.CosineAnnealingScheduler(), [half_wave(i / 8) for i in range(8)]),
        (optim.PolynomialScheduler(2), [(1 - i / 8) ** 2 for i in range(8)]),
        (
            optim.CosineAnnealingWarmRestartsScheduler("2ba", 2),
            [half_wave(share) for share in (0, 0.5, 0, 0.25, 0.5, 0.75, 0, 1 / 8)],
        ),
        (optim.ConstantWithWarmupScheduler("2ba"), [0, 0.5] + [1] * 6),
        (optim.LinearWithWarmupScheduler("2ba"), [0, 0.5, *(1 - i / 6 for i in range(6))]),
        (
            optim.CosineAnnealingWithWarmupScheduler("0.25dur"),
            [0, 0.5, *(half_wave(i / 6) for i in range(6))],
        ),
        (
            optim.PolynomialWithWarmupScheduler("2ba"),
            [0, 0.5, *((1 - i / 6) ** 2 for i in range(6))],
        ),
        (
            optim.MultiStepWithWarmupScheduler("2ba", ["1ep"], 0.5),
            [0, 0.5, 1, 1, 0.5, 0.5, 0.5, 0.5],
        ),
    ],
    ids=lambda value: type(value).__name__ if callable(value) else "",
)
def test_the_factors(scheduler, expected) -> None:
    """Each scheduler gives Composer's factors."""
    assert factors(scheduler) == pytest.approx(expected)


def test_a_schedule_is_stretched() -> None:
    """The scale of the schedule multiplies counts, and leaves shares of the training alone."""
    assert factors(optim.StepScheduler("2ba", 0.5), ssr=2.0) == [1] * 4 + [0.5] * 4
    assert factors(optim.LinearScheduler(), ssr=2.0) == factors(optim.LinearScheduler())


def test_what_makes_no_schedule() -> None:
    """Wall times, mixed units and schedules that are too short are errors."""
    with pytest.raises(ValueError, match="no wall time"):
        factors(optim.StepScheduler("1h"))
    with pytest.raises(ValueError, match="must be of one unit"):
        factors(optim.LinearWithWarmupScheduler("2sp"))
    with pytest.raises(ValueError, match="the training is longer"):
        factors(optim.LinearWithWarmupScheduler("2ba", t_max="1ep"))
    with pytest.warns(UserWarning, match="is no time at all"):
        factors(optim.LinearWithWarmupScheduler("0.01dur"), batches=1)


@pytest.mark.parametrize("kind", [optim.DecoupledSGDW, optim.DecoupledAdamW])
def test_decay_does_not_depend_on_the_rate(kind) -> None:
    """A step takes `weight_decay` of a weight at the first rate, and less as that falls."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = kind([weight], lr=0.1, weight_decay=0.5)
    weight.grad = torch.zeros(1)
    optimizer.step()
    assert weight.item() == pytest.approx(0.5)
    optimizer.param_groups[0]["lr"] = 0.05
    optimizer.step()
    assert weight.item() == pytest.approx(0.5 * 0.75)


def test_without_decay_they_are_torchs() -> None:
    """The rest of a step is torch's own."""
    found = []
    for kind, options in (
        (optim.DecoupledSGDW, {"momentum": 0.9}),
        (torch.optim.SGD, {"momentum": 0.9}),
    ):
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 2)
        optimizer = kind(layer.parameters(), lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(1, 4)).square().sum().backward()
            optimizer.step()
        found.append(layer.weight.detach())
    assert torch.equal(*found)
