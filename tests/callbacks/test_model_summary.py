from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from trainer_hooks.callbacks import ModelSummary
from trainer_hooks.callbacks.model_summary import LayerSummary, summarize
from trainer_hooks.errors import CallbackError, TrainerHooksWarning


class Net(nn.Module):
    """Two levels, an unused layer, a buffer that eval mode changes too, and random numbers."""

    example_input_array: object = None

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2, bias=False)
        self.unused = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.replaced = self.replaced + torch.rand(()) + random.random() + np.random.rand()
        return self.head(self.body(x))


@pytest.mark.parametrize("max_depth", [-2, 1.0, "1", None, True])
def test_depth_that_breaks_its_rule(max_depth):
    """A depth that is no whole number from -1 on is refused, by callback and function alike."""
    with pytest.raises(CallbackError, match=r"max_depth .* must be a whole number from -1 on"):
        ModelSummary(max_depth)
    with pytest.raises(CallbackError, match="max_depth"):
        summarize(nn.Linear(1, 1), max_depth)


@pytest.mark.parametrize(
    "example", [torch.ones(3, 7), "text", (), {"y": torch.ones(3, 4)}, torch.ones(3, 4, 5)]
)
def test_example_that_does_not_fit_is_reported(example):
    """An example input that forward cannot take costs the sizes and a warning, not the run."""
    net = Net()
    net.example_input_array = example
    with pytest.warns(TrainerHooksWarning, match="example_input_array of Net could not be run"):
        table = summarize(net)
    assert not table.has_sizes
    assert table.total_parameters == 4 * 8 + 8 + 16 + 16 + 6 + 3
    assert net.training
    assert not net.head._forward_hooks


def test_rows_and_totals():
    """Rows are the submodules down to max_depth, then the model's own parameters."""
    net = Net()
    net.head.eval()
    table = summarize(net)
    assert table.layers == (
        LayerSummary("body", "Sequential", 56, "train"),
        LayerSummary("head", "Linear", 16, "eval"),
        LayerSummary("unused", "Linear", 6, "train"),
        LayerSummary("(own)", "Parameter", 3, ""),
    )
    assert (table.trainable_parameters, table.frozen_parameters) == (78, 3)
    assert table.megabytes == 81 * 4 / 1e6
    assert (table.modules_in_train, table.modules_in_eval) == (6, 1)


@pytest.mark.parametrize(
    ("max_depth", "names"),
    [
        (0, []),
        (1, ["body", "head", "unused", "(own)"]),
        (2, ["body", "body.0", "body.1", "body.2", "head", "unused", "(own)"]),
        (-1, ["body", "body.0", "body.1", "body.2", "head", "unused", "(own)"]),
    ],
)
def test_depth(max_depth, names):
    """max_depth chooses the rows and never changes the totals."""
    table = summarize(Net(), max_depth)
    assert [layer.name for layer in table.layers] == names
    assert table.total_parameters == 81


def test_shared_weights_count_once():
    """A weight that two layers share counts once in the totals, and in both rows."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    table = summarize(model)
    assert [layer.parameters for layer in table.layers] == [9, 9]
    assert table.total_parameters == 9
    assert table.megabytes == 36 / 1e6


def test_lazy_parameters_are_left_lazy():
    """Parameters without a shape count as 0, are marked, and are not initialized by the summary."""
    model = nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 2))
    model.example_input_array = torch.ones(1, 3)
    table = summarize(model)
    assert [(layer.parameters, layer.is_lazy) for layer in table.layers] == [(0, True), (12, False)]
    assert table.total_parameters == 12
    assert isinstance(model[0].weight, nn.parameter.UninitializedParameter)
    assert "0 (lazy)" in str(table)


def test_lazy_buffers_are_left_lazy():
    """An example input is not run where that would initialize buffers either."""
    model = nn.Sequential(nn.LazyBatchNorm1d(affine=False))
    model.example_input_array = torch.ones(2, 3)
    assert not summarize(model).has_sizes
    assert isinstance(model[0].running_mean, nn.parameter.UninitializedBuffer)


def test_parameters_of_other_types_are_sized_by_their_type():
    """The size follows each parameter's own number of bytes."""
    assert summarize(nn.Linear(10, 10, bias=False).half()).megabytes == 200 / 1e6


@pytest.mark.parametrize(
    "example", [torch.ones(3, 4), (torch.ones(3, 4),), {"x": torch.ones(3, 4)}]
)
def test_sizes_of_an_example(example):
    """With an example input, each layer that ran has the sizes of what went in and out."""
    net = Net()
    net.example_input_array = example
    table = summarize(net)
    assert table.has_sizes
    assert [(layer.in_sizes, layer.out_sizes) for layer in table.layers] == [
        ("[3, 4]", "[3, 8]"),
        ("[3, 8]", "[3, 2]"),
        ("?", "?"),
        ("?", "?"),
    ]


def test_sizes_of_containers():
    """Several inputs and nested outputs are shown as lists and mappings of sizes."""

    class Inner(nn.Module):
        def forward(self, x, y, scale):
            return {"sum": x + y, "parts": (x, "text")}

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.example_input_array = (torch.ones(2), torch.ones(3, 2))

        def forward(self, x, y):
            return self.inner(x, y, scale=2)

    [layer] = summarize(Outer()).layers
    assert layer.in_sizes == "[[2], [3, 2], ?]"
    assert layer.out_sizes == "{sum: [3, 2], parts: [[2], ?]}"


def test_example_of_another_precision():
    """An example of another floating type than the model's is converted for the run."""
    net = Net().double()
    net.example_input_array = torch.ones(3, 4)
    assert summarize(net).has_sizes


@pytest.mark.parametrize("raises", [False, True])
def test_running_the_example_leaves_no_trace(raises):
    """Random numbers, buffers, modes, gradients and hooks are as before, even if forward fails."""
    net = Net()
    net.example_input_array = torch.ones(3, 4)
    net.body[1].eval()
    net(torch.ones(3, 4)).sum().backward()
    if raises:
        net.head.forward = None
    gradients = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    buffers = list(net.buffers())
    contents = [buffer.clone() for buffer in buffers]
    modes = [layer.training for layer in net.modules()]
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    expected = (torch.rand(()), random.random(), np.random.rand())
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)

    if raises:
        with pytest.warns(TrainerHooksWarning, match="could not be run"):
            summarize(net)
    else:
        assert summarize(net).has_sizes

    assert (torch.rand(()), random.random(), np.random.rand()) == expected
    assert all(new is old for new, old in zip(net.buffers(), buffers, strict=True))
    assert all(torch.equal(new, old) for new, old in zip(net.buffers(), contents, strict=True))
    assert [layer.training for layer in net.modules()] == modes
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(parameter.grad, gradient)
    assert not any(layer._forward_hooks for layer in net.modules())
    assert torch.is_grad_enabled()


def test_callback_prints_the_table():
    """on_fit_start prints the table through the trainer, once."""
    printed = []
    trainer = SimpleNamespace(print=lambda *args: printed.append(" ".join(map(str, args))))
    net = Net()
    net.example_input_array = torch.ones(3, 4)
    ModelSummary().on_fit_start(trainer, net)
    [table] = printed
    assert table == (
        "   Name    Type        Params  Mode   In sizes  Out sizes\n"
        "---------------------------------------------------------\n"
        "0  body    Sequential      56  train  [3, 4]    [3, 8]\n"
        "1  head    Linear          16  train  [3, 8]    [3, 2]\n"
        "2  unused  Linear           6  train  ?         ?\n"
        "3  (own)   Parameter        3         ?         ?\n"
        "---------------------------------------------------------\n"
        "   78  trainable params\n"
        "    3  non-trainable params\n"
        "   81  total params\n"
        "0.000  total estimated model params size (MB)\n"
        "    7  modules in train mode\n"
        "    0  modules in eval mode"
    )


def test_model_without_parameters():
    """A model that has nothing to show still has its totals."""
    table = summarize(nn.Identity())
    assert table.layers == ()
    assert str(table).splitlines()[2] == "    0  total params"
