"""Mistakes that were met by silence or by the wrong advice."""

from __future__ import annotations

import sys
import types
import warnings

import pytest
import torch

from trainer_hooks import Callback, Module, Trainer, TrainerHooksWarning
from trainer_hooks.callbacks import EarlyStopping, NaNGuard
from trainer_hooks.errors import CallbackError, ModuleError, NonFiniteError, StateKeyError


def test_the_step_of_a_guard(Tiny, quiet_trainer, batches) -> None:
    """What NaNGuard finds after an epoch's last step is told with that step."""

    class NanAfterFirstBatch(Tiny):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * (float("nan") if batch_idx else 1)

    with pytest.raises(NonFiniteError, match=r"up to optimizer step 3\)"):
        quiet_trainer(callbacks=NaNGuard()).fit(NanAfterFirstBatch(), batches(3))


def test_hyperparameters_that_cannot_be_saved_are_told_once() -> None:
    """A base class and its subclass may both save them."""

    class Base(Module):
        def __init__(self, layer):
            super().__init__()
            self.save_hyperparameters()

    class SavesHyperparameters(Base):
        def __init__(self, layer, width=1):
            super().__init__(layer)
            self.save_hyperparameters()

    with pytest.warns(TrainerHooksWarning) as caught:
        module = SavesHyperparameters(torch.nn.Linear(1, 1))
    assert len(caught) == 1
    assert module.saved_hparams == {"width": 1}


def test_two_of_a_kind_are_told_the_short_way() -> None:
    """Where a class takes a name, that is what tells two of it apart."""
    with pytest.raises(StateKeyError, match=r"EarlyStopping\(\.\.\., name=\.\.\.\)"):
        Trainer(callbacks=[EarlyStopping("loss"), EarlyStopping("loss")])
    Trainer(callbacks=[EarlyStopping("loss"), EarlyStopping("loss", name="other")])


def test_no_training_batches(Tiny, quiet_trainer, batches) -> None:
    """With a limit of none nothing is run, and what to change is that limit."""

    class RefusesValidation(Tiny):
        def validation_step(self, batch, batch_idx):
            raise AssertionError

    trainer = quiet_trainer(limit_train_batches=0, num_sanity_val_steps=2)
    with pytest.warns(TrainerHooksWarning, match="Set limit_train_batches to more"):
        trainer.fit(RefusesValidation(), batches(2), batches(2))


def test_an_argument_that_no_file_holds(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """load_from_checkpoint names what it lacks, and takes it."""

    class IgnoresLayerArgument(Tiny):
        def __init__(self, layer, width=1):
            super().__init__()
            self.save_hyperparameters(ignore=["layer"])

    trainer = quiet_trainer()
    trainer.fit(IgnoresLayerArgument(None), batches(1))
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    with pytest.raises(ModuleError, match=r"holds no hyperparameter 'layer'.*\(\.\.\., layer="):
        IgnoresLayerArgument.load_from_checkpoint(tmp_path / "c.ckpt")
    assert IgnoresLayerArgument.load_from_checkpoint(tmp_path / "c.ckpt", layer=3).hparams == {
        "width": 1
    }


@pytest.fixture
def lightning(monkeypatch):
    """A package whose classes have the names of Lightning's."""
    package = types.ModuleType("lightning")
    for name, base in (("LightningModule", torch.nn.Module), ("Callback", object)):
        setattr(package, name, type(name, (base,), {"__module__": "lightning.pytorch"}))
    monkeypatch.setitem(sys.modules, "lightning", package)
    return package


def test_a_module_of_lightning(lightning, quiet_trainer, batches) -> None:
    """A LightningModule is told as such, with what to derive from."""
    net = type("Net", (lightning.LightningModule,), {})()
    with pytest.raises(ModuleError, match=r"It is Lightning's.*trainer_hooks\.Module"):
        quiet_trainer().fit(net, batches(1))


def test_a_callback_of_lightning(lightning) -> None:
    """A callback of Lightning likewise."""
    callback = type("Counter", (lightning.Callback,), {})()
    with pytest.raises(CallbackError, match=r"It is Lightning's.*trainer_hooks\.Callback"):
        Trainer(callbacks=[callback])
    with warnings.catch_warnings(action="error"):
        Trainer(callbacks=[Callback()])
