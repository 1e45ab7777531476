"""Average: the core that every averaging callback is made of."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import get_ema_avg_fn

from trainer_hooks.callbacks.averaging.running_average import RunningAverage
from trainer_hooks.errors import CallbackError


def layer(value: float) -> nn.Module:
    module = nn.BatchNorm1d(2)
    with torch.no_grad():
        for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
            tensor.fill_(value)
    return module


def test_it_is_the_mean_of_all() -> None:
    """Without a function it is the mean; the first weights are taken as they are."""
    average = RunningAverage(layer(9.0), use_buffers=True)
    for value in (1.0, 2.0, 6.0):
        average.update(layer(value))
    assert average.count == 3
    assert average.module.weight.tolist() == [3.0, 3.0]
    assert average.module.running_mean.tolist() == [3.0, 3.0]


def test_counts_of_batches_are_not_averaged() -> None:
    """An integer buffer is that of now: half a batch is no batch."""
    average = RunningAverage(layer(0.0), use_buffers=True)
    for count in (3, 8):
        module = layer(1.0)
        module.num_batches_tracked.fill_(count)
        average.update(module)
    assert average.module.num_batches_tracked.item() == 8


def test_buffers_may_be_left_out() -> None:
    """Without use_buffers they are those of the last update."""
    average = RunningAverage(layer(0.0))
    average.update(layer(1.0))
    average.update(layer(2.0))
    assert average.module.weight.tolist() == [1.5, 1.5]
    assert average.module.running_mean.tolist() == [2.0, 2.0]


def test_a_function_of_ones_own() -> None:
    """avg_fn is given the average, the weight and the count."""
    average = RunningAverage(layer(0.0), avg_fn=get_ema_avg_fn(0.75))
    average.update(layer(4.0))
    average.update(layer(8.0))
    assert average.module.weight.tolist() == [5.0, 5.0]


def test_it_changes_places_and_back() -> None:
    """After two exchanges everything is where it was, in the same tensors."""
    module, average = layer(1.0), RunningAverage(layer(2.0))
    parameter = module.weight
    average.exchange(module)
    assert module.weight is parameter
    assert module.weight.tolist() == [2.0, 2.0]
    assert average.module.running_var.tolist() == [1.0, 1.0]
    average.exchange(module)
    assert module.running_var.tolist() == [1.0, 1.0]
    assert average.module.weight.tolist() == [2.0, 2.0]


def test_buffers_that_have_grown_change_places_and_back() -> None:
    """Those of another shape than in the average, also None, are where they were afterwards."""
    module = layer(1.0)
    module.register_buffer("rows", None, persistent=False)
    average = RunningAverage(module, use_buffers=True)
    module.rows = torch.ones(2)
    average.exchange(module)
    assert module.rows is None
    assert average.module.rows.tolist() == [1.0, 1.0]
    average.exchange(module)
    assert average.module.rows is None
    average.update(module)
    module.rows = torch.zeros(3)
    average.exchange(module)
    assert module.rows.tolist() == [1.0, 1.0]
    average.exchange(module)
    assert module.rows.tolist() == [0.0, 0.0, 0.0]
    average.update(module)
    assert average.module.rows.tolist() == [0.0, 0.0, 0.0]
    assert average.module.running_mean.tolist() == [1.0, 1.0]


def test_its_state_comes_back() -> None:
    """What state_dict and extra_state return is what load takes."""
    first, second = RunningAverage(layer(0.0)), RunningAverage(layer(0.0))
    first.update(layer(1.0))
    first.update(layer(2.0))
    second.load(first.state_dict(), first.extra_state())
    for average in (first, second):
        average.update(layer(9.0))
    assert second.module.weight.tolist() == first.module.weight.tolist() == [4.0, 4.0]


def test_gradients_are_not_copied() -> None:
    """The copy holds weights alone."""
    module = layer(1.0)
    module(torch.ones(3, 2)).sum().backward()
    assert RunningAverage(module).module.weight.grad is None


def test_the_count_is_on_the_host() -> None:
    """Looking at it at each update waits for no device, wherever the average is."""
    average = RunningAverage(layer(1.0), torch.device("meta"))
    assert average.model.n_averaged.device.type == "cpu"


def test_a_module_with_other_layers_is_refused() -> None:
    """A module that is built anew meanwhile is told by the names that came or went."""
    average, module = RunningAverage(layer(1.0)), layer(1.0)
    module.register_parameter("more", nn.Parameter(torch.zeros(1)))
    with pytest.raises(CallbackError, match="'more' came or went"):
        average.exchange(module)
