"""Hyperparameters that are objects: a file has plain data, and annotations make them again."""

from __future__ import annotations

import enum
from argparse import Namespace
from dataclasses import dataclass, field

import pytest
import torch

from trainer_hooks import Module
from trainer_hooks.errors import ModuleError, TrainerHooksWarning


class Kind(enum.Enum):
    SMALL = 1
    LARGE = "l"


@dataclass
class Optimizer:
    rate: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass
class Config:
    width: int
    kind: Kind = Kind.SMALL
    optimizers: list[Optimizer] = field(default_factory=lambda: [Optimizer()])


class TakesConfig(Module):
    def __init__(self, config: Config, kind: Kind | None = None, extra: Namespace = None) -> None:  # noqa: RUF013 - as users write it
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(config.width, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture
def saved(quiet_trainer, tmp_path):
    """Fit a module for a step, and return its checkpoint."""

    def save(module):
        trainer = quiet_trainer(max_steps=1)
        trainer.fit(module, [torch.ones(2, 3)])
        trainer.save_checkpoint(tmp_path / "one.ckpt")
        return tmp_path / "one.ckpt"

    return save


def test_dataclasses_enums_and_namespaces_come_back(saved) -> None:
    """They are what they were, nested ones too; the file holds plain values under their names."""
    config = Config(3, Kind.LARGE, [Optimizer(0.2), Optimizer(betas=(0.5, 0.6))])
    path = saved(TakesConfig(config, Kind.SMALL, Namespace(depth=2)))
    again = TakesConfig.load_from_checkpoint(path)
    assert again.hparams == {
        "config": config, "kind": Kind.SMALL, "extra": Namespace(depth=2)
    }  # fmt: skip
    assert type(again.hparams.config.optimizers[0]) is Optimizer
    held = torch.load(path, weights_only=True)["hyper_parameters"]
    assert held["config"]["kind"] == "LARGE"
    assert held["config"]["optimizers"][1] == {"rate": 0.1, "betas": (0.5, 0.6)}
    assert held["kind"] == "SMALL"
    assert held["extra"] == {"depth": 2}


def test_what_is_passed_to_load_counts(saved) -> None:
    """An argument that is given replaces the one in the file, which is not made again then."""
    path = saved(TakesConfig(Config(3)))
    other = Config(3, Kind.LARGE)
    assert TakesConfig.load_from_checkpoint(path, config=other).hparams.config is other


def test_one_without_an_annotation_is_left_out_with_advice() -> None:
    """Nothing says of which class it is to be made again."""

    class Bare(Module):
        def __init__(self, config):
            super().__init__()
            self.save_hyperparameters()

    with pytest.warns(TrainerHooksWarning, match=r"Annotate it in __init__ \(config: Config\)"):
        module = Bare(Config(2))
    assert module.saved_hparams == {}
    assert module.hparams.config == Config(2)


def test_one_that_does_not_come_back_equal_is_left_out() -> None:
    """A class that compares by identity, or does not take its fields, cannot be relied on."""

    @dataclass(eq=False)
    class Odd:
        width: int

    class Bare(Module):
        def __init__(self, odd) -> None:
            super().__init__()
            self.save_hyperparameters()

    Bare.__init__.__annotations__["odd"] = Odd
    with pytest.warns(TrainerHooksWarning, match="'odd' of .*Bare is left out"):
        assert Bare(Odd(1)).saved_hparams == {}


def test_a_class_that_changed_since_is_told(saved, monkeypatch) -> None:
    """The error names the hyperparameter, the class and what is wrong with it."""
    path = saved(TakesConfig(Config(3)))

    @dataclass
    class Newer:
        breadth: int

    monkeypatch.setitem(TakesConfig.__init__.__annotations__, "config", Newer)
    with pytest.raises(ModuleError, match=r"'config' .*does not make a .*Newer.*'width'"):
        TakesConfig.load_from_checkpoint(path)


@pytest.mark.parametrize(
    "whole", [Optimizer(0.3), Namespace(rate=0.3, betas=(0.9, 0.99))], ids=["dataclass", "args"]
)
def test_a_configuration_may_be_given_as_a_whole(whole) -> None:
    """Its items are the hyperparameters, as those of a dict are."""

    class Whole(Module):
        def __init__(self, given) -> None:
            super().__init__()
            self.save_hyperparameters(given, ignore="betas")

    assert Whole(whole).hparams == Whole(whole).saved_hparams == {"rate": 0.3}
