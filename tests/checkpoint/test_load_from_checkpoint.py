"""Module.load_from_checkpoint: a module made again from a file."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from trainer_hooks import DataModule, Module
from trainer_hooks.checkpoint.weights import load_weights
from trainer_hooks.errors import CheckpointError, ModuleError, OptionError, TrainerHooksWarning


@pytest.fixture
def saved(fitted, net_type, tmp_path):
    """A checkpoint of a module made with rate=0.3."""
    trainer = fitted(net_type(rate=0.3))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    return tmp_path / "a.ckpt", trainer.module


def test_a_module_is_made_with_its_hyperparameters(saved, net_type):
    """The new module has the arguments and the weights that were saved."""
    path, before = saved
    module = net_type.load_from_checkpoint(path)
    assert module.hparams == {"width": 2, "rate": 0.3}
    assert torch.equal(module.layer.weight, before.layer.weight)
    assert module.layer.weight is not before.layer.weight


def test_arguments_given_now_win(saved, net_type):
    """Keyword arguments replace saved hyperparameters."""
    assert net_type.load_from_checkpoint(saved[0], rate=0.5).hparams.rate == 0.5


def test_random_numbers_are_as_before(saved, net_type):
    """Making the module, which draws its first weights, leaves no trace in any generator."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = (random.random(), np.random.rand(), torch.rand(1))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    net_type.load_from_checkpoint(saved[0])
    assert (random.random(), np.random.rand(), torch.rand(1)) == expected


def test_weights_that_do_not_fit_are_refused(saved, net_type):
    """A weight of another shape is an error that names it and both shapes."""
    with pytest.raises(CheckpointError, match=r"layer.weight \(saved \(1, 2\), here \(1, 3\)\)"):
        net_type.load_from_checkpoint(saved[0], width=3)


def test_not_strict_loads_what_fits(saved, net_type):
    """strict=False passes over weights that are on one side only, with a warning."""
    path, before = saved

    class More(net_type):
        def __init__(self, width=2, rate=0.1):
            super().__init__(width, rate)
            self.head = torch.nn.Linear(1, 1)

    with pytest.raises(CheckpointError, match=r"Missing key.*: head.weight, head.bias"):
        More.load_from_checkpoint(path)
    told = r"into .*More in part: Missing key\(s\) in state_dict: head.weight, head.bias\. "
    with pytest.warns(TrainerHooksWarning, match=told):
        module = More.load_from_checkpoint(path, strict=False)
    assert torch.equal(module.layer.weight, before.layer.weight)


@pytest.mark.parametrize(
    ("device", "rule"),
    [
        ("cuda:99", "finds no such device on this machine"),
        ("foo", "must be a torch.device"),
        (True, "must be a torch.device"),
        (99, "finds no such device on this machine"),
    ],
)
def test_a_device_that_is_not_there(saved, net_type, device, rule):
    """A missing device is refused before anything is loaded, and not by torch."""
    # torch gives a number the accelerator's name where there is one
    shown = "'?([a-z]+:)?99'?" if device == 99 else repr(device)
    with pytest.raises(OptionError, match=rf"map_location {shown} of .*load_from.*{rule}") as told:
        net_type.load_from_checkpoint("no such file.ckpt", map_location=device)
    assert str(told.value).endswith("Use 'cpu' or another.")


def test_not_strict_says_that_no_name_matches(saved, net_type):
    """Where strict=False loads nothing at all, as of a compiled module, the warning says so."""

    class Renamed(net_type):
        def __init__(self, width=2, rate=0.1):
            super().__init__(width, rate)
            self.other = self.layer
            del self.layer

    told = r"not at all, as no name matches: Missing .*other.weight.*; Unexpected .*layer.weight"
    with pytest.warns(TrainerHooksWarning, match=told):
        Renamed.load_from_checkpoint(saved[0], strict=False)


@pytest.mark.parametrize("returns", [True, False])
def test_a_module_that_renames_weights_as_it_loads_them(saved, net_type, recwarn, returns):
    """What its own load_state_dict returns is told; if that is nothing, so is nothing."""

    class Renamed(net_type):
        def __init__(self, width=2, rate=0.1):
            super().__init__(width, rate)
            self.other = self.layer
            del self.layer

        def load_state_dict(self, state_dict, strict=True, assign=False):
            renamed = {name.replace("layer.", "other."): t for name, t in state_dict.items()}
            result = super().load_state_dict(renamed, strict, assign)
            return result if returns else None

    path, before = saved
    module = Renamed.load_from_checkpoint(path, strict=False)
    assert torch.equal(module.other.weight, before.layer.weight)
    assert [str(one.message) for one in recwarn] == []


@pytest.mark.parametrize(
    "place",
    [None, "cpu", torch.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage],
    ids=["none", "text", "device", "dict", "function"],
)
def test_every_form_of_map_location_is_taken(saved, net_type, place):
    """map_location may be all that torch.load takes."""
    module = net_type.load_from_checkpoint(saved[0], map_location=place)
    assert module.device.type == "cpu"


def test_map_location_moves_the_module(saved, net_type):
    """A device as map_location is where the module is afterwards."""
    module = net_type.load_from_checkpoint(saved[0], map_location="meta")
    assert module.device.type == "meta"


def test_arguments_that_init_no_longer_takes_are_left_out(saved, net_type):
    """A saved hyperparameter that __init__ does not know is no obstacle."""

    class Fewer(Module):
        def __init__(self, width):
            super().__init__()
            self.layer = torch.nn.Linear(width, 1)

    assert Fewer.load_from_checkpoint(saved[0]).layer.in_features == 2


def test_kwargs_of_init_take_all(saved, net_type):
    """A module with **kwargs is given every hyperparameter."""

    class Open(Module):
        def __init__(self, **kwargs):
            super().__init__()
            self.given = kwargs
            self.layer = torch.nn.Linear(kwargs["width"], 1)

    assert Open.load_from_checkpoint(saved[0]).given == {"width": 2, "rate": 0.3}


def test_late_layers_are_built_first(fitted, net_type, tmp_path):
    """Layers of configure_model are there when their weights come."""

    class Late(net_type):
        def configure_model(self):
            self.late = torch.nn.Linear(1, 1)

    trainer = fitted(Late())
    trainer.save_checkpoint(tmp_path / "late.ckpt")
    module = Late.load_from_checkpoint(tmp_path / "late.ckpt")
    assert torch.equal(module.late.weight, trainer.module.late.weight)


def test_the_module_may_change_the_checkpoint_first(saved, net_type):
    """on_load_checkpoint of the module is called before the weights are looked at."""

    class Renamed(net_type):
        def __init__(self, width=2, rate=0.1):
            super().__init__(width, rate)
            self.first = self.layer
            del self.layer

        def on_load_checkpoint(self, checkpoint):
            weights = checkpoint["state_dict"]
            for name in list(weights):
                weights[name.replace("layer", "first")] = weights.pop(name)

    module = Renamed.load_from_checkpoint(saved[0])
    assert torch.equal(module.first.weight, saved[1].layer.weight)


def test_a_refused_load_changes_no_weight():
    """Where one weight does not fit, none is loaded."""
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(1, 1), "b": torch.nn.Linear(1, 1)})
    before = {name: value.clone() for name, value in module.state_dict().items()}
    weights = {name: value + 1 for name, value in before.items()}
    weights["b.bias"] = torch.zeros(5)
    for strict in (True, False):
        with pytest.raises(CheckpointError, match=r"'x.ckpt'.*of another shape: b.bias"):
            load_weights(module, weights, "x.ckpt", strict=strict)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_long_lists_of_names_are_cut_short():
    """Of many names the first eight are shown, and the number of the others."""
    module = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(10)))
    with pytest.raises(CheckpointError) as caught:
        load_weights(module, {}, "x.ckpt")
    assert "Missing key(s) in state_dict: 0.weight, 0.bias, 1.weight" in str(caught.value)
    assert "and 12 more" in str(caught.value)


@pytest.mark.parametrize("kind", [Module, DataModule])
def test_on_an_object_it_is_refused(kind) -> None:
    """An object would stay as it is, so the method is the class's alone; it can be looked up."""
    with pytest.raises(ModuleError, match=r"Write loaded = \w+\.load_from_checkpoint\(\.\.\.\)"):
        kind().load_from_checkpoint("a.ckpt")
