"""Mistakes that were met by silence or by the wrong advice."""

from __future__ import annotations

import sys
import types
import warnings

import pytest
import torch

from trainer_hooks import Callback, DataModule, Module, Trainer, TrainerHooksWarning
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint, NaNGuard
from trainer_hooks.cli.main import main
from trainer_hooks.errors import (
    CallbackError,
    ModuleError,
    NonFiniteError,
    OptionError,
    StateKeyError,
)


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


def test_a_data_module_whose_setup_takes_no_stage(Tiny, quiet_trainer, batches) -> None:
    """It is told how to define it, before anything is prepared."""

    class NoStage(DataModule):
        def prepare_data(self):
            raise AssertionError("data were prepared")

        def setup(self):
            pass

        def train_dataloader(self):
            return batches()

    with pytest.raises(ModuleError, match=r"NoStage: .*Define setup\(self, stage\)"):
        quiet_trainer().fit(Tiny(), datamodule=NoStage())


def test_hyperparameters_that_were_not_saved(Tiny) -> None:
    """The call that saves them is named."""
    with pytest.raises(AttributeError, match=r"'lr': none were saved. Call self.save_hyperparam"):
        Tiny().hparams.lr  # noqa: B018 - reading it is the mistake


def test_a_metric_that_was_not_logged(Tiny, quiet_trainer, batches) -> None:
    """The error is a KeyError, and lists what was logged."""

    class Logs(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("val_loss", 1.0)
            return super().training_step(batch, batch_idx)

    trainer = quiet_trainer()
    with pytest.raises(
        KeyError, match=r"no metric .val_acc. of the last run\. It has logged nothing"
    ):
        trainer.callback_metrics["val_acc"]
    trainer.fit(Logs(), batches())
    with pytest.raises(KeyError, match=r"has logged .*'val_loss'.*Did you mean 'val_loss'"):
        trainer.callback_metrics["val_los"]
    assert trainer.callback_metrics.get("val_acc") is None


def test_an_attribute_of_the_trainers_choice(Tiny) -> None:
    """`self.device = ...` names the options that choose it."""
    with pytest.raises(AttributeError, match=r"Tiny.device can only be read.*accelerator="):
        Tiny().device = "cpu"


def test_a_step_that_returns_a_tuple(Tiny, quiet_trainer, batches) -> None:
    """Tensors are shown by their shapes, and the dict is named."""

    class Pair(Tiny):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx), torch.ones(64, 10)

    with pytest.raises(ModuleError) as caught:
        quiet_trainer().fit(Pair(), batches())
    told = str(caught.value)
    assert "returned (tensor of shape (), tensor of shape (64, 10)) of type tuple" in told
    assert "Return {'loss': loss, ...} to return more." in told


def test_a_method_that_was_meant_as_the_training_step(quiet_trainer, batches) -> None:
    """`train_step` is named, as nothing calls it."""

    class Misnamed(Module):
        def train_step(self, batch, batch_idx):
            pass

        def configure_optimizers(self):
            pass

    with pytest.raises(ModuleError, match="Nothing calls train_step: rename it"):
        quiet_trainer().fit(Misnamed(), batches())


def test_a_strategy_of_lightnings() -> None:
    """It is told apart from ours of the same name."""
    theirs = type("DDPStrategy", (), {"__module__": "lightning.pytorch.strategies.ddp"})
    with pytest.raises(OptionError, match=r"Write trainer_hooks\.DDPStrategy, which takes"):
        Trainer(strategy=theirs())


def test_options_in_an_object() -> None:
    """A TrainingArguments is not printed whole."""
    theirs = type("TrainingArguments", (), {"__repr__": lambda self: "x" * 5000})
    with pytest.raises(OptionError, match=r"^Trainer\(TrainingArguments\(\.\.\.\).*coming-from"):
        Trainer(theirs())
    told = r"^Trainer\(Linear\(\.\.\.\), .* Pass the module to trainer.fit. .*coming-from"
    with pytest.raises(OptionError, match=told):
        Trainer(torch.nn.Linear(1, 1), theirs())


def test_two_equal_savers() -> None:
    """The cure is for who uses them, and names the arguments that tell them apart."""
    savers = [ModelCheckpoint(), ModelCheckpoint()]
    with pytest.raises(StateKeyError, match=r"two ModelCheckpoint .*Leave one.*another monitor or"):
        Trainer(callbacks=savers)


def test_a_filename_with_its_ending(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """The ending stands there once."""
    saver = ModelCheckpoint(tmp_path, filename="model.ckpt")
    quiet_trainer(saver, enable_checkpointing=True).fit(Tiny(), batches())
    assert [path.name for path in tmp_path.iterdir()] == ["model.ckpt"]


def test_names_on_the_command_line(capsys) -> None:
    """A project's name is mended, and an option of the config is put behind --set."""
    assert main(["new", "my proj"]) == 2
    assert capsys.readouterr().err.endswith("Try: my-proj\n")
    with pytest.raises(SystemExit):
        main(["sweep", "c.yaml", "--set", "a=1", "--trainer.max_epochs=2"])
    assert capsys.readouterr().err.endswith("Give it by --set trainer.max_epochs=2\n")
