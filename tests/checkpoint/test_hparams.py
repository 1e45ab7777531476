"""Hyperparameters: which arguments are kept, in what form, and what cannot be saved."""

from __future__ import annotations

import copy
import datetime as dt
import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer_hooks import Module
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.checkpoint.hparams import HyperParameters, pickled_hparams, warn_of_pickles
from trainer_hooks.compat.lightning import LightningModule
from trainer_hooks.errors import ModuleError, TrainerHooksWarning


class All(Module):
    def __init__(self, width, rate=0.1, *, depth=2, **others):
        super().__init__()
        local = width * 2
        self.save_hyperparameters()
        self.local = local


class Named(Module):
    def __init__(self, width, rate=0.1, depth=2):
        super().__init__()
        self.save_hyperparameters("width", "depth")


class Ignoring(Module):
    def __init__(self, width, rate=0.1, depth=2):
        super().__init__()
        self.save_hyperparameters(ignore=["rate", "depth"])


class IgnoringOne(Module):
    def __init__(self, width, rate=0.1):
        super().__init__()
        self.save_hyperparameters(ignore="rate")


class FromDict(Module):
    def __init__(self, width):
        super().__init__()
        self.save_hyperparameters({"breadth": width, "secret": 1}, ignore="secret")


class Child(All):
    def __init__(self, width, extra="e", **others):
        super().__init__(width * 10, **others)
        self.child = True


class Twice(Module):
    def __init__(self, width, rate=0.1):
        super().__init__()
        self.save_hyperparameters("width")
        self.save_hyperparameters({"rate": rate * 2})


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (lambda: All(3), {"width": 3, "rate": 0.1, "depth": 2}),
        (lambda: All(3, 1.0, depth=5), {"width": 3, "rate": 1.0, "depth": 5}),
        (lambda: All(3, a=1, b="x"), {"width": 3, "rate": 0.1, "depth": 2, "a": 1, "b": "x"}),
        (lambda: Named(3, rate=9), {"width": 3, "depth": 2}),
        (lambda: Ignoring(3), {"width": 3}),
        (lambda: IgnoringOne(3), {"width": 3}),
        (lambda: FromDict(3), {"breadth": 3}),
        (lambda: Twice(3), {"width": 3, "rate": 0.2}),
        (
            lambda: Child(3, depth=4),
            {"width": 3, "extra": "e", "depth": 4, "rate": 0.1},
        ),
    ],
    ids=["all", "given", "kwargs", "names", "ignore", "ignore one", "dict", "twice", "subclass"],
)
def test_the_form_of_the_call_decides_what_is_kept(module, expected):
    """All arguments, named ones, all but some, or a dict; a subclass's arguments come first."""
    made = module()
    assert made.hparams == expected
    assert made.saved_hparams == expected


def test_hyperparameters_are_attributes_too():
    """hparams.rate is hparams['rate'], to read and to write."""
    hparams = All(3).hparams
    assert hparams.rate == 0.1
    hparams.rate = 0.5
    assert hparams["rate"] == 0.5


def test_an_unknown_hyperparameter_is_answered_with_the_known_ones():
    """A mistyped attribute raises AttributeError and suggests the nearest."""
    with pytest.raises(AttributeError, match=r"no hyperparameter 'rat'.*Did you mean 'rate'"):
        _ = All(3).hparams.rat
    assert not hasattr(HyperParameters(), "rate")


@pytest.mark.parametrize("dup", [copy.deepcopy, lambda h: pickle.loads(pickle.dumps(h))])
def test_hyperparameters_can_be_copied(dup):
    """Copies and pickles are of the same type, and independent."""
    before = HyperParameters(a=[1])
    after = dup(before)
    assert type(after) is HyperParameters
    after.a.append(2)
    assert before == {"a": [1]}


def test_a_name_that_is_no_argument_is_refused():
    """Keeping an argument that __init__ does not have is an error, with the nearest name."""

    class Wrong(Module):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters("widht")

    with pytest.raises(ModuleError, match=r"no such argument of __init__.*Did you mean 'width'"):
        Wrong(1)


def test_outside_init_there_are_no_arguments():
    """Called elsewhere, it says where it belongs; a dict can be given anywhere."""
    module = Module()
    with pytest.raises(ModuleError, match="was called outside __init__"):
        module.save_hyperparameters()
    module.save_hyperparameters({"a": 1})
    assert module.hparams == {"a": 1}


def test_a_frame_can_be_given():
    """A helper that calls it for __init__ hands the frame of __init__ on."""

    class Helped(Module):
        def __init__(self, width):
            super().__init__()
            self.keep(inspect.currentframe())

        def keep(self, frame):
            self.save_hyperparameters(frame=frame)

    assert Helped(4).hparams == {"width": 4}


def test_what_cannot_be_saved_is_said_and_left_out():
    """An argument that no checkpoint can hold stays in hparams, with one warning by name."""

    class Layered(Module):
        def __init__(self, layer, act=torch.relu, width=1):
            super().__init__()
            self.save_hyperparameters()

    with pytest.warns(TrainerHooksWarning) as said:
        module = Layered([torch.nn.Linear(1, 1)])
    assert len(said) == 2
    assert "hyperparameter 'layer' of" in str(said[0].message)
    assert "it holds Linear" in str(said[0].message)
    assert "load_from_checkpoint(..., layer=...)" in str(said[0].message)
    assert module.saved_hparams == {"width": 1}
    assert set(module.hparams) == {"layer", "act", "width"}


class Picklable:
    """No plain data, but of a class that a pickle can name."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.ones(2))


class OddTensor(torch.Tensor):
    pass


def test_pickled_ones_are_told_from_those_that_cannot_be():
    """Tensors lie beside the pickle; one of another class, or a function without a name, cannot."""
    given = {"fine": Picklable(), "lambda": lambda: None, "odd": [OddTensor(torch.ones(1))]}
    with pytest.warns(TrainerHooksWarning) as said:
        warn_of_pickles(given, All)
    assert [str(one.message).partition(" ")[2][:30] for one in said] == [
        "'lambda' of All is left out of",
        "'odd' of All is left out of ch",
        "hold the hyperparameters 'fine",
    ]
    assert "it holds a tensor of OddTensor" in str(said[1].message)
    pickled, reasons = pickled_hparams(given)
    assert (set(pickled), set(reasons)) == ({"fine"}, {"lambda", "odd"})
    assert pickled["fine"].tensors[0] is given["fine"].weight
    assert pickled["fine"].open().weight is given["fine"].weight


def test_what_is_saved_does_not_change_with_the_arguments():
    """What the checkpoint will hold is a copy from the moment of the call."""
    widths = [1, 2]
    module = All(widths)
    widths.append(3)
    assert module.saved_hparams["width"] == [1, 2]


def test_what_torch_does_not_know_is_saved_too(fitted, net_type, tmp_path):
    """Paths, dates and NumPy's numbers are kept, and a module is made with them again."""

    class Rich(net_type):
        def __init__(self, width=2, rate=0.1, where=None, when=None):
            super().__init__(width, rate)
            self.save_hyperparameters()

    given = {"width": np.int64(2), "where": Path("a"), "when": dt.timedelta(1)}
    fitted(Rich(**given)).save_checkpoint(tmp_path / "a.ckpt")
    hparams = Rich.load_from_checkpoint(tmp_path / "a.ckpt").hparams
    assert hparams == {"rate": 0.1, **given}
    assert type(hparams.width) is np.int64


def test_loggers_are_given_them_unless_told_otherwise():
    """logger=False keeps them in checkpoints and out of the loggers."""

    class Quiet(Module):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters(logger=False)

    assert All(3).logged_hparams["width"] == 3
    assert Quiet(3).logged_hparams is None
    assert Quiet(3).saved_hparams == {"width": 3}
    changed = All(3)
    changed.hparams.width = 4
    assert changed.logged_hparams["width"] == 3


def test_hyperparameters_that_are_set_later_are_saved(fitted, net_type, tmp_path):
    """Assigned values go into checkpoints; a run is still told from others by the arguments."""

    class Noted(net_type):
        def __init__(self, width=2, note="first"):
            super().__init__(width)
            self.save_hyperparameters()

    changed = Noted()
    changed.hparams.note = "second"
    changed.hparams["hook"] = print  # no plain data: it is left out, and no other is
    assert changed.saved_hparams["note"] == "first"
    fitted(changed).save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)["hyper_parameters"]
    assert saved == {**changed.saved_hparams, "note": "second"}
    again = Noted.load_from_checkpoint(tmp_path / "a.ckpt")
    assert again.hparams == saved
    again.hparams.note = "third"
    fitted(again).save_checkpoint(tmp_path / "b.ckpt")
    assert Noted.load_from_checkpoint(tmp_path / "b.ckpt").hparams.note == "third"


def test_a_list_of_names_says_how_names_are_passed():
    """It is no object with hyperparameters, and no name."""

    class Wrong(Module):
        def __init__(self, a, b):
            super().__init__()
            self.save_hyperparameters(["a", "b"])

    with pytest.raises(ModuleError, match=r"one by one as in save_hyperparameters\('a', 'b'\)"):
        Wrong(1, 2)


@pytest.mark.parametrize(("base", "pickles"), [(Module, False), (LightningModule, True)])
def test_objects_that_a_hook_adds_are_as_those_of_save_hyperparameters(
    quiet_trainer, tmp_path, base, pickles
):
    """Of a port they are kept as pickles, of a module of ours left out, with one warning."""

    class Adds(base):
        def __init__(self, width, criterion=None):
            super().__init__()
            self.save_hyperparameters(ignore=["criterion"])
            self.layer, self.criterion = torch.nn.Linear(width, 1), criterion

        def on_save_checkpoint(self, checkpoint):
            added = {"criterion": self.criterion, "note": "plain"}
            checkpoint["hyper_parameters"].update(added)

        def training_step(self, batch, batch_idx):
            return self.criterion(self.layer(batch), batch[:, :1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer, module = quiet_trainer(max_epochs=1), Adds(3, torch.nn.HuberLoss(delta=0.5))
    path = tmp_path / "b.ckpt"
    trainer.fit(module, [torch.ones(2, 3)])
    said = "as pickles" if pickles else "left out"
    with pytest.warns(TrainerHooksWarning, match=f"'criterion' of .*{said}") as told:
        trainer.save_checkpoint(path)
    assert len(told) == 1
    # without another warning, which would be an error here
    trainer.save_checkpoint(path)
    held = load_checkpoint(path)["hyper_parameters"]
    assert (held["note"], held["width"], "criterion" in held) == ("plain", 3, pickles)
    quiet_trainer(max_epochs=2).fit(module, [torch.ones(2, 3)], ckpt_path=path)
    if pickles:
        found = torch.load(path, weights_only=False)["hyper_parameters"]["criterion"]
        assert found.delta == 0.5
