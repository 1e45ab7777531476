from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from trainer_hooks import Trainer
from trainer_hooks.callbacks import ModelSummary, RichModelSummary
from trainer_hooks.callbacks.model_table import LayerSummary, summarize
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
    assert (table.modules_in_train, table.modules_in_eval) == (5, 1)


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


@pytest.fixture
def trainer():
    """What the summary asks a trainer for."""
    return SimpleNamespace(is_global_zero=True)


EXPECTED = """\
   Name    Type        Params  Mode   FLOPs  In sizes  Out sizes
-------------------------------------------------------------------------------------
0  body    Sequential      56  train    192  [3, 4]    [3, 8]
1  head    Linear          16  train     96  [3, 8]    [3, 2]
2  unused  Linear           6  train      ?  ?         ?
3  (own)   Parameter        3             ?  ?         ?
-------------------------------------------------------------------------------------
   78  trainable params
    3  non-trainable params
   81  total params
0.000  total estimated model params size (MB)
    6  modules in train mode
    0  modules in eval mode
  288  FLOPs of one forward of the example (matrix products, convolutions, attention)
"""


@pytest.mark.parametrize("kind", [ModelSummary, RichModelSummary])
def test_callback_prints_the_table(trainer, capsys, kind):
    """on_fit_start prints the table once; where there is no terminal, rich's is the same text."""
    net = Net()
    net.example_input_array = torch.ones(3, 4)
    kind().on_fit_start(trainer, net)
    assert capsys.readouterr().out == EXPECTED


@pytest.mark.parametrize("kind", [ModelSummary, RichModelSummary])
def test_no_summary_where_it_is_switched_off(trainer, capsys, kind):
    """max_depth=0 prints nothing, and only the main process prints."""
    kind(max_depth=0).on_fit_start(trainer, Net())
    trainer.is_global_zero = False
    kind().on_fit_start(trainer, Net())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", [ModelSummary, RichModelSummary])
def test_the_option_switches_off_the_default_alone(Tiny, batches, capsys, kind):
    """As in Lightning: a summary that was passed is printed."""
    options = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
    quiet = Trainer(max_epochs=1, enable_model_summary=False, callbacks=kind(2), **options)
    quiet.fit(Tiny(), batches(1))
    assert "total params" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ModelSummary, r"summarize_kwargs colour .* the plain one takes none"),
        (RichModelSummary, r"summarize_kwargs colour .* must be among header_style"),
    ],
)
def test_argument_that_summarize_does_not_take(trainer, kind, message):
    """An argument that nobody uses is refused when fit starts, by name."""
    with pytest.raises(CallbackError, match=message):
        kind(colour="red").on_fit_start(trainer, Net())


def test_overridden_summarize(trainer):
    """A summarize of one's own is given the columns, the totals and the callback's arguments."""
    given = {}

    class Own(ModelSummary):
        @staticmethod
        def summarize(
            summary_data, total_parameters, trainable_parameters, model_size, **summarize_kwargs
        ):
            given.update(summarize_kwargs, columns=dict(summary_data))
            given["totals"] = (total_parameters, trainable_parameters, model_size)

    net = Net()
    net.example_input_array = torch.ones(3, 4)
    Own(max_depth=1, colour="red").on_fit_start(trainer, net)
    assert given["colour"] == "red"
    assert given["columns"][" "] == ["0", "1", "2", "3"]
    assert given["columns"]["Params"] == ["56", "16", "6", "3"]
    assert given["totals"] == (81, 78, 81 * 4 / 1e6)
    assert given["total_training_modes"] == {"train": 6, "eval": 0}
    assert given["total_flops"] == 288


def flops_of(model, *names):
    """The operations of layers, and those of the whole model."""
    table = summarize(model, -1)
    by_name = {layer.name: layer.flops for layer in table.layers}
    return [by_name[name] for name in names], table.total_flops


def test_flops_of_layers():
    """Each layer has the operations of its forward, one inside another's in both."""
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Flatten(), nn.Linear(4, 5)
    )
    model.example_input_array = torch.ones(2, 3, 3, 3)
    conv, linear = 2 * 2 * 4 * (3 * 3 * 3), 2 * 2 * 4 * 5
    assert flops_of(model, "0", "0.0", "0.1", "2") == ([conv, conv, 0, linear], conv + linear)


def test_flops_of_a_layer_that_runs_twice():
    """A layer that runs twice has the operations of both, and the sizes of the first."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.example_input_array = torch.ones(3, 4)

        def forward(self, x):
            return self.layer(self.layer(x)[:1])

    table = summarize(Twice())
    [layer] = table.layers
    assert (layer.flops, table.total_flops) == (2 * 4 * 4 * (3 + 1),) * 2
    assert (layer.in_sizes, layer.out_sizes) == ("[3, 4]", "[3, 4]")


def test_flops_after_an_error_that_the_model_catches():
    """A layer that fails inside a model that goes on counts for nobody."""

    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.wrong, self.right = nn.Linear(3, 3), nn.Linear(4, 4)
            self.outer = nn.ModuleList([self.wrong])
            self.example_input_array = torch.ones(1, 4)

        def forward(self, x):
            try:
                return self.wrong(x)
            except RuntimeError:
                return self.right(x)

    assert flops_of(Careful(), "wrong", "right") == ([None, 32], 32)


def test_transformer_is_not_run_as_a_whole():
    """torch's fast path for eval mode would hide the layers inside: they have sizes and FLOPs."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1)
    model.example_input_array = torch.ones(2, 5, 8)
    found, total = flops_of(model, "layers.0.linear1", "layers.0.linear2")
    assert found == [2 * 10 * 8 * 16] * 2
    assert total > sum(found)
    assert torch.backends.mha.get_fastpath_enabled()


# --- Wrappers


def refuses(*args, **kwargs):
    """Stand in for a compiler that must not be called."""
    raise AssertionError("something was compiled")


@pytest.mark.slow
def test_compiled_modules_are_seen_through():
    """A compiled model has the rows of the model, and the summary compiles nothing."""
    net = Net()
    net.example_input_array = torch.ones(3, 4)
    expected = summarize(net, -1)
    net.body = torch.compile(net.body, backend=refuses)
    net.head.compile(backend=refuses)
    assert summarize(torch.compile(net, backend=refuses), -1) == expected
    assert expected.has_sizes


def test_parallel_wrappers_are_seen_through(tmp_path):
    """DDP, around a model and around a part of it, leaves no trace in names and counts."""
    net = Net()
    net.example_input_array = torch.ones(3, 4)
    expected = summarize(net, -1)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        net.body = nn.parallel.DistributedDataParallel(net.body)
        assert summarize(nn.parallel.DistributedDataParallel(net), -1) == expected
    finally:
        torch.distributed.destroy_process_group()


def test_checkpointed_layers_are_seen_through():
    """A layer wrapped for activation checkpointing has its own name and type."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = nn.Sequential(checkpoint_wrapper(nn.Linear(2, 2)), nn.Linear(2, 2))
    assert [(row.name, row.type) for row in summarize(model, -1).layers] == [
        ("0", "Linear"),
        ("1", "Linear"),
    ]


def test_module_that_stands_in_two_places():
    """A module that two parents share has one row, at its first place."""
    shared = nn.Linear(2, 2)
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared))
    table = summarize(model, -1)
    assert [layer.name for layer in table.layers] == ["0", "0.0", "1"]
    assert [layer.parameters for layer in table.layers] == [6, 6, 6]
    assert table.total_parameters == 6


def test_nothing_is_hooked_for_good():
    """The counter of operations leaves no hook that every module of the process would pay for."""
    from torch.nn.modules import module

    net = Net()
    net.example_input_array = torch.ones(3, 4)
    summarize(net, -1)
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks
    assert not any(layer._forward_pre_hooks for layer in net.modules())


def test_model_without_parameters():
    """A model that has nothing to show still has its totals."""
    table = summarize(nn.Identity())
    assert table.layers == ()
    assert str(table).splitlines()[2].split() == ["0", "total", "params"]
