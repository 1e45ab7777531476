"""Helpers under Lightning's names."""

from __future__ import annotations

import inspect
import logging
from functools import partial
from pathlib import Path

import pytest
import torch

from trainer_hooks import Callback, DataModule, Module, TrainerHooksWarning
from trainer_hooks.compat.lightning.callbacks.progress.tqdm_progress import Tqdm
from trainer_hooks.compat.lightning.utilities import (
    AttributeDict,
    grad_norm,
    is_overridden,
    move_data_to_device,
    rank_zero_deprecation,
    rank_zero_info,
    rank_zero_only,
    rank_zero_warn,
)
from trainer_hooks.compat.lightning.utilities.parsing import get_init_args
from trainer_hooks.compat.lightning.utilities.rank_zero import rank_zero_debug
from trainer_hooks.errors import ModuleError, OptionError
from trainer_hooks.runtime.topology import Topology


def test_the_callback_can_be_had_beside_the_built_in_ones():
    """`from trainer_hooks.callbacks import Callback` is the same class."""
    from trainer_hooks.callbacks import Callback as found

    assert found is Callback


class TestGradNorm:
    """`grad_norm`, compared with what torch computes."""

    def model(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1, bias=False))
        model[0].bias.requires_grad_(False)
        model(torch.arange(6.0).reshape(2, 3)).sum().backward()
        return model

    @pytest.mark.parametrize("norm_type", [1, 2.0, "inf"])
    def test_each_gradient_and_all_together(self, norm_type):
        """Each parameter with a gradient has its norm, and the total is that of all as one."""
        model = self.model()
        norms = grad_norm(model, norm_type)
        p = float(norm_type)
        assert set(norms) == {
            f"grad_{p}_norm/0.weight", f"grad_{p}_norm/1.weight", f"grad_{p}_norm_total",
        }  # fmt: skip
        grads = [model[0].weight.grad, model[1].weight.grad]
        assert torch.equal(norms[f"grad_{p}_norm/0.weight"], grads[0].norm(p))
        whole = torch.cat([grad.flatten() for grad in grads])
        assert torch.allclose(norms[f"grad_{p}_norm_total"], whole.norm(p))

    def test_the_separator_and_no_gradients(self):
        """The text between kind and name may be chosen; without gradients there is nothing."""
        assert "grad_2.0_norm.0.weight" in grad_norm(self.model(), 2, group_separator=".")
        assert grad_norm(torch.nn.Linear(1, 1), 2) == {}

    @pytest.mark.parametrize("norm_type", [0, -1.0, "nan"])
    def test_what_is_no_norm_is_refused(self, norm_type):
        """The p of a norm is positive."""
        with pytest.raises(OptionError, match=r"must be a positive number, or 'inf'"):
            grad_norm(torch.nn.Linear(1, 1), norm_type)


class Net(Module):
    def training_step(self, batch, batch_idx):
        return None


class Data(DataModule):
    def setup(self, stage):
        pass


class Watch(Callback):
    def on_fit_start(self, trainer, module):
        pass


class TestIsOverridden:
    """`is_overridden` of modules, data modules and callbacks."""

    @pytest.mark.parametrize(
        ("kind", "own", "inherited"),
        [
            (Net, "training_step", "validation_step"),
            (Net, "training_step", "on_fit_start"),
            (Data, "setup", "teardown"),
            (Watch, "on_fit_start", "on_fit_end"),
        ],
    )
    def test_of_the_classes_that_users_subclass(self, kind, own, inherited):
        """A method of a subclass counts, one that is inherited does not."""
        assert is_overridden(own, kind())
        assert not is_overridden(inherited, kind())

    def test_on_the_object_itself(self):
        """A method that one object was given counts; None switches one off."""
        net = Net()
        net.on_fit_start = partial(print, "start")
        assert is_overridden("on_fit_start", net)
        net.training_step = None
        assert not is_overridden("training_step", net)

    def test_nothing_and_another_parent(self):
        """Of None nothing is overridden; another class's methods are asked for with `parent`."""
        assert not is_overridden("training_step", None)
        assert is_overridden("forward", torch.nn.Linear(1, 1), parent=torch.nn.Module)

    def test_what_cannot_be_told_is_an_error(self):
        """An object of another kind, and a method that there is not, are named."""
        with pytest.raises(ModuleError, match="it is no Module, DataModule or Callback"):
            is_overridden("forward", torch.nn.Linear(1, 1))
        with pytest.raises(ModuleError, match="Did you mean 'training_step'"):
            is_overridden("trainingstep", Net())


def test_a_dict_with_attributes():
    """An `AttributeDict` is a dict whose items can be read and set as attributes."""
    found = AttributeDict(a=1)
    found.b = 2
    assert (found.a, found["b"], dict(found)) == (1, 2, {"a": 1, "b": 2})
    with pytest.raises(AttributeError, match="no hyperparameter 'c'"):
        found.c  # noqa: B018


@pytest.mark.parametrize("device", ["meta", torch.device("meta")])
def test_a_batch_moves(device):
    """Tensors of any nesting move to a device that is given by name or as an object."""
    moved = move_data_to_device({"x": [torch.ones(1)], "name": "n"}, device)
    assert (moved["x"][0].device.type, moved["name"]) == ("meta", "n")


class TestRankZero:
    """What the first process alone does."""

    @pytest.fixture
    def as_second(self, monkeypatch):
        """Let this process be the second of two."""
        second = Topology(world_size=2, global_rank=1, local_world_size=2)
        monkeypatch.setattr("trainer_hooks.runtime.rank_zero.read_topology", lambda: second)

    def test_the_first_process(self, caplog):
        """The first process calls, logs and warns, at the line of the caller."""
        assert rank_zero_only.rank == 0
        assert rank_zero_only(lambda: "called", default="not")() == "called"
        with caplog.at_level(logging.DEBUG, logger="trainer_hooks"):
            rank_zero_info("half of %d", 2)
            rank_zero_debug("small")
        assert [(r.message, r.levelname, r.filename) for r in caplog.records] == [
            ("half of 2", "INFO", "test_utilities.py"), ("small", "DEBUG", "test_utilities.py"),
        ]  # fmt: skip
        with pytest.warns(TrainerHooksWarning, match="careful") as warned:
            rank_zero_warn("careful")
        assert warned[0].filename == __file__
        with pytest.warns(RuntimeWarning, match="other"):
            rank_zero_warn("other", category=RuntimeWarning)
        with pytest.warns(FutureWarning, match="old"):
            rank_zero_deprecation("old")

    @pytest.mark.parametrize("tell", [rank_zero_warn, rank_zero_deprecation])
    def test_another_line(self, tell):
        """`stacklevel=5` is the line that calls the one that warns, as in Lightning."""

        def helper():
            tell("deep", stacklevel=5)

        with pytest.warns(match="deep") as warned:
            helper()
        assert "helper()" in Path(__file__).read_text().splitlines()[warned[0].lineno - 1]

    def test_another_process(self, as_second, caplog):
        """Another process does nothing, and gives what it was told to."""
        assert rank_zero_only.rank == 1
        assert rank_zero_only(lambda: "called")() is None
        assert rank_zero_only(lambda: "called", default="not")() == "not"
        with caplog.at_level(logging.DEBUG, logger="trainer_hooks"):
            rank_zero_info("unheard")
            rank_zero_warn("unheard")
            rank_zero_deprecation("unheard")
        assert caplog.records == []

    def test_the_rank_may_be_set(self, monkeypatch):
        """It holds for the decorator, until the process gets another rank."""
        monkeypatch.setattr(rank_zero_only, "_set_rank", None)
        rank_zero_only.rank = 3
        assert rank_zero_only.rank == 3
        assert rank_zero_only(lambda: "called")() is None
        rank_zero_only.rank = 0
        assert rank_zero_only(lambda: "called")() == "called"
        second = Topology(world_size=2, global_rank=1, local_world_size=2)
        monkeypatch.setattr("trainer_hooks.runtime.rank_zero.read_topology", lambda: second)
        assert rank_zero_only.rank == 1


class TestInitArguments:
    def test_they_are_those_of_the_constructor(self) -> None:
        """All arguments are there by name, those in `**kwargs` too, as at the start of it."""

        class Base:
            def __init__(self, *rest, width=2, **kwargs) -> None:
                super().__init__()
                other = 5  # noqa: F841 - a local variable is none
                self.found = get_init_args(inspect.currentframe())

        assert Base(1, depth=3).found == {"width": 2, "depth": 3}

    def test_another_function_has_none(self) -> None:
        """A frame that runs no `__init__` of a class gives nothing."""
        assert get_init_args(inspect.currentframe()) == {}


@pytest.mark.slow  # it imports Lightning
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1"),
        (1.0, "1.000"),
        (0.12345, "0.123"),
        (1e-5, "1e-5"),
        (12345.6, "12345.6"),
        ("1", "1.000"),
        ("1.5", "1.500"),
        ("10000", "10000"),
        ("abc", "abc"),
        ("", ""),
    ],
)
def test_a_bar_pads_numbers(number, text):
    """Floats and texts of numbers are as wide as they can become; as in Lightning's own class."""
    from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm as LightningTqdm

    assert Tqdm.format_num(number) == text
    assert LightningTqdm.format_num(number) == text
