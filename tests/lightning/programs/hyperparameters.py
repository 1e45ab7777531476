"""Hyperparameters: what is saved, and what can be read."""

from __future__ import annotations

import argparse
from typing import Any

import torch

from programs import differs, error


def _plain_hparams(hparams: Any) -> dict[str, Any]:
    return dict(sorted(dict(hparams).items()))


def save_hyperparameters_all(x):
    """All arguments of `__init__`."""

    class Net(x.Net):
        def __init__(self, width=1, depth=2, *, rate=0.5, **more):
            super().__init__()
            self.save_hyperparameters()

    module = Net(3, extra="a")
    return {
        "hparams": dict(module.hparams), "by name": module.hparams.width,
        "initial": dict(module.hparams_initial),
    }  # fmt: skip


def save_hyperparameters_named(x):
    """Some by their names."""

    class Net(x.Net):
        def __init__(self, width=1, depth=2, rate=0.5):
            super().__init__()
            self.save_hyperparameters("width", "rate")

    return {"hparams": dict(Net(3).hparams)}


def save_hyperparameters_ignored(x):
    """All but some."""

    class Net(x.Net):
        def __init__(self, layers, width=1, depth=2):
            super().__init__()
            self.save_hyperparameters(ignore=["layers", "depth"])

    return {"hparams": dict(Net(torch.nn.Linear(1, 1), 3).hparams)}


def save_hyperparameters_in_a_subclass(x):
    """A subclass that calls its base, with and without a call of its own."""

    class Base(x.Net):
        def __init__(self, width=1, depth=2):
            super().__init__()
            self.save_hyperparameters()

    class Silent(Base):
        def __init__(self, rate=0.5, **more):
            super().__init__(**more)

    class Own(Base):
        def __init__(self, rate=0.5, width=7):
            super().__init__(width=width, depth=9)
            self.save_hyperparameters(ignore=["width"])

    return {
        "silent": _plain_hparams(Silent(depth=3).hparams),
        "own": _plain_hparams(Own().hparams),
    }


@differs("The class of some errors", error=(error("ValueError"), error("ModuleError")))
def save_hyperparameters_of_an_object(x):
    """A dict, a namespace, keywords."""

    class One(x.Net):
        def __init__(self, conf):
            super().__init__()
            self.save_hyperparameters(conf)

    class Two(x.Net):
        def __init__(self, **conf):
            super().__init__()
            self.save_hyperparameters(conf)

    class Three(x.Net):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters({"doubled": 2 * width})

    return {
        "dict": dict(One({"a": 1, "b": 2}).hparams),
        "namespace": dict(vars(One(argparse.Namespace(a=1)).hparams))
        or dict(One(argparse.Namespace(a=1)).hparams),
        "keywords": dict(Two(a=1).hparams),
        "computed": dict(Three(3).hparams),
        "error": x.error(lambda: One(3)),
    }


def save_hyperparameters_twice(x):
    """A second call adds."""

    class Net(x.Net):
        def __init__(self, width=1, depth=2):
            super().__init__()
            self.save_hyperparameters("width")
            self.save_hyperparameters("depth")

    return {"hparams": dict(Net().hparams)}


def hyperparameters_can_be_changed(x):
    """`hparams` may be changed; the initial ones stay."""

    class Net(x.Net):
        def __init__(self, width=1):
            super().__init__()
            self.save_hyperparameters()

    module = Net()
    module.hparams.width = 5
    module.hparams["more"] = 1
    return {
        "hparams": dict(module.hparams), "initial": dict(module.hparams_initial),
        "missing": x.error(lambda: module.hparams.odd),
    }  # fmt: skip


def changed_hyperparameters_in_a_checkpoint(x):
    """The arguments with which `load_from_checkpoint` makes the module again."""

    class Net(x.Net):
        def __init__(self, width=1):
            super().__init__()
            self.save_hyperparameters()

    module, trainer = Net(), x.trainer()
    module.hparams.width = 5
    trainer.fit(module, x.loader(1))
    trainer.save_checkpoint(x.folder / "a.ckpt")
    return {"width": Net.load_from_checkpoint(x.folder / "a.ckpt").hparams.width}


def without_hyperparameters(x):
    """A module that saves none."""
    return {"hparams": dict(x.Net().hparams)}


@differs(
    "`save_hyperparameters()` in another method, which `__init__` calls",
    error=("none", error("ModuleError")),
)
def save_hyperparameters_in_another_method(x):
    """The arguments of `__init__` are those of the caller's frame."""

    class Net(x.Net):
        def __init__(self, width=1):
            super().__init__()
            self.keep()

        def keep(self):
            self.save_hyperparameters()

    return {"error": x.error(lambda: Net(3))}
