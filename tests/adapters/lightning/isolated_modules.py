"""LightningModules and data modules of users in our Trainer do what they do in Lightning's."""

from __future__ import annotations

import tempfile
import warnings
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from isolated_checks import Theirs, loader

import trainer_hooks
import trainer_hooks.compat.lightning as ported
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.errors import CallbackError, ModuleError, TrainerHooksWarning

pl = pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")
demos = pytest.importorskip("pytorch_lightning.demos.boring_classes")
OmegaConf = pytest.importorskip("omegaconf").OmegaConf

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]

TRAINERS = {"there": pl.Trainer, "here": trainer_hooks.Trainer}

IMPORTS = ("pytorch_lightning",)


def trained(kind, module, data=None, **options):
    """Fit a module for an epoch, with one seed; return the trainer."""
    trainer = kind(
        **{
            "max_epochs": 1, "logger": False, "accelerator": "cpu", "enable_progress_bar": False,
            "enable_model_summary": False, "default_root_dir": tempfile.mkdtemp(), **options,
        }
    )  # fmt: skip
    torch.manual_seed(2)
    if isinstance(data, pl.LightningDataModule):
        trainer.fit(module, datamodule=data)
    else:
        trainer.fit(module, data)
    return trainer


def in_both(make, data=lambda: None):
    """Return steps, metrics and weights of a fit, there and here."""
    results = []
    for kind in TRAINERS.values():
        torch.manual_seed(1)
        module = make()
        trainer = trained(kind, module, data(), enable_checkpointing=False)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        weights = [parameter.tolist() for parameter in module.parameters()]
        results.append((trainer.global_step, metrics, weights))
    return results


# --- methods ---


class Assigned(Theirs):
    """One whose steps are chosen in `__init__`."""

    training_step = pl.LightningModule.training_step

    def __init__(self):
        super().__init__()
        self.training_step = self.one_step
        self.on_train_epoch_end = self.tell

    def one_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def tell(self):
        self.log("epochs", 1.0)


class Prefixed(Theirs):
    """One that logs by methods of its own, which call Lightning's."""

    def log(self, name, value, **options):
        super().log(f"own/{name}", value, **options)

    def log_dict(self, dictionary, **options):
        super().log_dict({f"dict-{name}": value for name, value in dictionary.items()}, **options)

    def optimizers(self, **options):
        return super().optimizers(**options)

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_epoch=True)
        self.log_dict({"rate": self.optimizers().param_groups[0]["lr"]})
        return loss


class Inherited(Prefixed):
    """One whose base class logs in that way."""

    def log(self, name, value, **options):
        self.logged = name
        super().log(f"{name}-2", value, **options)


@pytest.mark.parametrize("kind", [Assigned, Prefixed, Inherited])
def test_methods_that_a_module_replaces(kind):
    """Assigned steps and hooks are called; `super().log` logs, and the rest is as there."""
    there, here = in_both(kind, loader)
    assert here == there
    assert here[1]


class AssignedLater(Theirs):
    """One that assigns its steps and a hook in the hook `place`."""

    place = ""

    def assign(self, place):
        if place != self.place:
            return
        self.training_step = self.other_step
        self.validation_step = lambda batch, batch_idx=0: self.log("assigned", 2.0)
        self.on_train_batch_end = lambda *_: self.log("hook", 3.0, on_epoch=True)

    def setup(self, stage):
        self.assign("setup")

    def configure_model(self):
        self.assign("configure_model")

    def on_fit_start(self):
        self.assign("on_fit_start")

    def on_train_epoch_start(self):
        if self.current_epoch == 1 and self.place == "on_train_epoch_start":
            self.training_step = self.other_step

    def on_train_batch_start(self, batch, batch_idx):
        if self.global_step == 3 and self.place == "on_train_batch_start":
            self.training_step = self.other_step

    def other_step(self, batch, batch_idx):
        loss = self.layer(batch).abs().mean()
        self.log("other", loss)
        return loss


PLACES = [
    "", "setup", "configure_model", "on_fit_start", "on_train_epoch_start", "on_train_batch_start",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_methods_that_are_assigned_in_a_hook(place):
    """From there on they are called, as in Lightning; a hook, if it is assigned before training."""
    kind = type("AssignedLater", (AssignedLater,), {"place": place})
    results = []
    for trainer_class in TRAINERS.values():
        torch.manual_seed(1)
        module = kind()
        trainer = trained(trainer_class, module, loader(), max_epochs=2, enable_checkpointing=False)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        results.append((metrics, [parameter.tolist() for parameter in module.parameters()]))
    assert results[0] == results[1]
    assert ("other" in results[1][0]) == bool(place)


def test_a_method_with_super_is_called_on_the_module():
    """What it sets is an attribute of the module, which has its own class in and after the run."""
    kinds = []

    class Looks(pl.Callback):
        def on_train_end(self, trainer, pl_module):
            kinds.append(type(pl_module))

    module = Inherited()
    trained(trainer_hooks.Trainer, module, loader(), callbacks=[Looks()])
    assert module.logged == "dict-rate"
    assert kinds == [Inherited]
    assert "log" not in vars(module)


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (demos.BoringModel, lambda: None),
        (type("Mine", (demos.BoringModel,), {}), demos.BoringDataModule),
        (demos.ManualOptimBoringModel, lambda: None),
        (
            lambda: demos.BoringModel(),
            lambda: pl.LightningDataModule.from_datasets(
                demos.RandomDataset(32, 8), demos.RandomDataset(32, 8), batch_size=2
            ),
        ),
    ],
    ids=["BoringModel", "BoringDataModule", "ManualOptimBoringModel", "from_datasets"],
)
def test_classes_that_lightning_defines(make, data):
    """Lightning's demos and the data modules that it makes are no bare bases."""
    there, here = in_both(make, data)
    assert here == there
    assert here[0] > 0


def test_the_class_of_a_module_of_ours():
    """In a callback of Lightning, the class of the module makes others, and has its name."""
    made = []

    class Copies(pl.Callback):
        def on_train_end(self, trainer, pl_module):
            kind = type(pl_module)
            copy = kind(pl_module.width)
            copy.load_state_dict(pl_module.state_dict())
            made.append((copy, kind.__name__, kind.factor(), isinstance(copy, kind)))
            assert isinstance(pl_module, kind)
            assert isinstance(pl_module, pl.LightningModule)

    class Net(trainer_hooks.Module):
        def __init__(self, width):
            super().__init__()
            self.width = width
            self.layer = torch.nn.Linear(width, 1)

        @classmethod
        def factor(cls):
            return 3

        def training_step(self, batch, batch_idx):
            return self.layer(batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trained(trainer_hooks.Trainer, Net(4), loader(), callbacks=[Copies()])
    ((copy, name, factor, is_instance),) = made
    assert type(copy) is Net
    assert (name, factor, is_instance) == ("Net", 3, True)


def test_a_ported_callback_in_lightnings_trainer():
    """A built-in one says which trainer it met; one that reads common names alone runs."""

    class Counts(ported.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.batches += 1

    counts = Counts()
    trained(pl.Trainer, Theirs(), loader(), callbacks=[counts])
    assert counts.batches == 4
    with pytest.raises(
        CallbackError,
        match=r"hook on_fit_start of EarlyStopping, .*pytorch_lightning\.trainer\.trainer\.Trainer"
        r" and failed: .*'progress'.*to_lightning\(callback\)",
    ):
        trained(pl.Trainer, Theirs(), loader(), callbacks=[ported.callbacks.EarlyStopping("loss")])


# --- what callbacks and the Tuner set ---

TUNERS = {"there": pl.tuner.Tuner, "here": trainer_hooks.Tuner}
QUIET = {
    "max_epochs": 1, "logger": False, "accelerator": "cpu", "enable_progress_bar": False,
    "enable_model_summary": False, "enable_checkpointing": False,
}  # fmt: skip


class Rated(Theirs):
    """A module whose learning rate is a hyperparameter alone."""

    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class RatedTwice(Rated):
    """A module that has a copy of the hyperparameter as an attribute."""

    def __init__(self, lr=0.1):
        super().__init__(lr)
        self.lr = lr


@pytest.mark.parametrize("kind", [Rated, RatedTwice])
@pytest.mark.parametrize("side", TUNERS)
def test_the_tuner_sets_a_hyperparameter(side, kind, tmp_path):
    """The rate that it finds is the one that the next fit trains with, and that is saved."""
    # as many epochs as the search has steps in Lightning, which ends it with the fit
    options = {**QUIET, "max_epochs": 5, "default_root_dir": tmp_path}
    module, trainer = kind(), TRAINERS[side](**options)
    found = TUNERS[side](trainer).lr_find(
        module, loader(), num_training=20, early_stop_threshold=None
    )
    rate = found.suggestion()
    assert rate != 0.1
    assert module.hparams == {"lr": rate}
    assert getattr(module, "lr", rate) == rate
    trainer.fit(module, loader())
    assert trainer.optimizers[0].param_groups[0]["lr"] == rate
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    assert kind.load_from_checkpoint(tmp_path / "x.ckpt").hparams.lr == rate


def test_our_finder_sets_a_hyperparameter():
    """The fit that it is a part of trains with the rate."""
    finder, module = trainer_hooks.callbacks.LearningRateFinder(num_training_steps=20), Rated()
    trainer = trained(trainer_hooks.Trainer, module, loader(), callbacks=[finder])
    assert finder.chosen != 0.1
    assert module.hparams.lr == trainer.optimizers[0].param_groups[0]["lr"] == finder.chosen


class Sized(pl.LightningDataModule):
    """A data module whose batch size is an attribute, a hyperparameter, or both."""

    def __init__(self, batch_size, places):
        super().__init__()
        if "hparams" in places:
            self.save_hyperparameters("batch_size")
        if "attribute" in places:
            self.batch_size = batch_size

    @property
    def sizes(self):
        """The batch size in each place."""
        return [*self.hparams.values(), *(vars(self)[n] for n in ["batch_size"] if n in vars(self))]

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(64, 4), self.sizes[0])


@pytest.mark.parametrize("places", [["attribute"], ["hparams"], ["attribute", "hparams"]])
@pytest.mark.parametrize("side", TUNERS)
def test_the_tuner_sets_the_batch_size_of_a_data_module(side, places, tmp_path):
    """Wherever the data module keeps it, the size reaches the loaders of the trials."""
    data, trainer = Sized(2, places), TRAINERS[side](**QUIET, default_root_dir=tmp_path)
    found = TUNERS[side](trainer).scale_batch_size(Theirs(), datamodule=data, max_trials=3)
    assert found == 8
    assert data.sizes == [8] * len(places)


@pytest.mark.parametrize("places", [["attribute"], ["hparams"], ["attribute", "hparams"]])
@pytest.mark.parametrize("finder", [pl.callbacks.BatchSizeFinder, ported.callbacks.BatchSizeFinder])
def test_a_finder_sets_the_batch_size_of_a_data_module(finder, places):
    """Lightning's own finder and ours set the size, and the fit has batches of it."""
    data = Sized(2, places)
    trainer = trained(trainer_hooks.Trainer, Theirs(), data, callbacks=[finder(max_trials=3)])
    assert data.sizes == [8] * len(places)
    assert trainer.global_step == 8


def test_what_a_callback_of_ours_sets_in_a_data_module():
    """It is an attribute of Lightning's data module, whose loaders use it."""

    class Sets(trainer_hooks.Callback):
        def setup(self, trainer, module, stage):
            trainer.datamodule.batch_size = 16

    data = Sized(2, ["attribute"])
    trainer = trained(trainer_hooks.Trainer, Theirs(), data, callbacks=[Sets()])
    assert data.batch_size == 16
    assert trainer.global_step == 4


# --- hyperparameters ---


@dataclass
class Config:
    """A configuration."""

    lr: float = 0.1


VALUES = {
    "rate": 0.1,
    "net": torch.nn.Linear(4, 1),
    "optimizer": partial(torch.optim.SGD, lr=0.1),
    "kind": torch.optim.SGD,
    "config": Config(0.3),
    "namespace": Namespace(width=4),
    "omega": OmegaConf.create({"model": {"width": 4}}),
    "folder": Path("data"),
}


def module_of(base):
    """Return a module class with hyperparameters that are no plain data."""

    class Objects(base.LightningModule):
        def __init__(
            self, rate, net, optimizer, kind, config, namespace, omega, folder, extra=None
        ):
            super().__init__()
            self.save_hyperparameters(logger=False)
            self.net = net

        def training_step(self, batch, batch_idx):
            return self.net(batch).pow(2).mean()

        def configure_optimizers(self):
            return self.hparams.optimizer(self.parameters())

    return Objects


WAYS = {
    "there": (pl, pl.Trainer), "hosted": (pl, trainer_hooks.Trainer),
    "ported": (ported, ported.Trainer),
}  # fmt: skip


def saved_by(way, kind=None, extra=None):
    """Return the class, the trained module and the checkpoint of a way to train it."""
    base, trainer_class = WAYS[way]
    kind = kind or module_of(base)
    torch.manual_seed(1)
    module = kind(**{**VALUES, "net": torch.nn.Linear(4, 1)}, extra=extra)
    trainer = trained(trainer_class, module, loader())
    path = Path(tempfile.mkdtemp(), "x.ckpt")
    trainer.save_checkpoint(path)
    return kind, module, path


@pytest.mark.parametrize("way", WAYS)
def test_objects_among_the_hyperparameters(way):
    """They come back from a file that is opened as trusted, as Lightning's do, with the weights."""
    kind, module, path = saved_by(way)
    assert "module_of" in kind.__qualname__
    again = kind.load_from_checkpoint(path, weights_only=False)
    for name, value in VALUES.items():
        assert type(again.hparams[name]) is type(value), name
    assert again.hparams.config == Config(0.3)
    assert again.hparams.omega.model.width == 4
    assert again.hparams.optimizer.keywords == {"lr": 0.1}
    assert torch.equal(again.net.weight, module.net.weight)


@pytest.mark.parametrize("way", ["hosted", "ported"])
def test_a_file_with_objects_runs_nothing_here(way):
    """A resume reads it without opening a pickle, and the weights are in it once."""
    _, module, path = saved_by(way)
    checkpoint = load_checkpoint(path)
    held = checkpoint["hyper_parameters"]["net"]
    assert type(held).__name__ == "PickledObject"
    # the memory that the two share is written once
    assert held.tensors[0].data_ptr() == checkpoint["state_dict"]["net.weight"].data_ptr()
    trainer = WAYS[way][1](max_epochs=2, logger=False, default_root_dir=tempfile.mkdtemp())
    trainer.fit(module, loader(), ckpt_path=path)
    assert trainer.global_step == 8


def test_a_ported_module_from_a_file_that_is_not_trusted():
    """The error names the arguments to pass, and the option; with them it loads."""
    kind, module, path = saved_by("ported")
    with pytest.raises(ModuleError, match=r"'net', .* as pickles.*net=\.\.\..*weights_only=False"):
        kind.load_from_checkpoint(path)
    given = {name: VALUES[name] for name in VALUES if name not in {"rate", "folder"}}
    again = kind.load_from_checkpoint(path, **given)
    assert torch.equal(again.net.weight, module.net.weight)


@pytest.mark.parametrize("way", ["hosted", "ported"])
def test_they_are_told_at_the_start(way):
    """One line names those that are pickles, and one each of those that cannot be."""
    base, trainer_class = WAYS[way]
    kind = module_of(base)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = kind(**VALUES, extra=lambda: 1)
        trained(trainer_class, module, loader(), enable_checkpointing=False, max_epochs=0)
    told = [str(one.message) for one in caught if one.category is TrainerHooksWarning]
    left_out = [text for text in told if text.startswith("hyperparameter 'extra' of ")]
    pickles = [text for text in told if text.startswith("checkpoints hold the hyperparameters")]
    assert len(left_out) == len(pickles) == 1
    assert "'extra'" not in pickles[0]
    assert "'net'" in pickles[0]


def test_a_hosted_data_module_with_an_omegaconf_configuration_alone():
    """Lightning makes it again from our checkpoint with the container, not with a dict."""

    class Data(pl.LightningDataModule):
        def __init__(self, config):
            super().__init__()
            self.save_hyperparameters(config)

        def train_dataloader(self):
            return loader()

    config = OmegaConf.create({"model": {"width": 4}})
    path = Path(tempfile.mkdtemp(), "saved.ckpt")
    for kind in TRAINERS.values():
        trained(kind, Theirs(), Data(config)).save_checkpoint(path)
        made = Data.load_from_checkpoint(path, weights_only=False)
        assert OmegaConf.is_config(made.hparams)
        assert made.hparams.model.width == 4


def test_a_hosted_omegaconf_configuration_as_the_only_argument():
    """Lightning makes the container again, with interpolations that lead out of its parts."""

    class Configured(pl.LightningModule):
        def __init__(self, config):
            super().__init__()
            self.save_hyperparameters(config)
            self.layer = torch.nn.Linear(config.model.width, 1)

        training_step = Theirs.training_step
        configure_optimizers = Theirs.configure_optimizers

    config = OmegaConf.create({"model": {"width": "${width}"}, "width": 4})
    results = []
    for kind in TRAINERS.values():
        trainer = trained(kind, Configured(config), loader())
        path = Path(tempfile.mkdtemp(), "x.ckpt")
        trainer.save_checkpoint(path)
        again = Configured.load_from_checkpoint(path, weights_only=False)
        results.append((type(again.hparams), dict(again.hparams), again.hparams.model.width))
    assert results[0] == results[1]


# --- what hooks and loggers are given ---


class Noting(pl.Callback):
    """Note the loss of each batch, and the batches that validations have counted."""

    def __init__(self):
        self.losses, self.validated = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]))


class NotingCounts(Noting):
    def on_validation_epoch_end(self, trainer, module):
        progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
        self.validated.append((progress.current.ready, progress.current.completed))

    def on_train_end(self, trainer, module):
        self.on_validation_epoch_end(trainer, module)


class LossOfWindows(demos.BoringModel):
    """A module that notes the loss of each batch itself, too."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]))


def test_the_loss_of_a_batch_is_divided_by_the_window():
    seen = []
    for kind in (*TRAINERS.values(), ported.Trainer):
        torch.manual_seed(1)
        module, noting = LossOfWindows(), Noting()
        trained(
            kind, module, callbacks=[noting], accumulate_grad_batches=4, limit_train_batches=6,
            limit_val_batches=0, enable_checkpointing=False,
        )  # fmt: skip
        assert noting.losses == module.losses
        seen.append(noting.losses)
    assert len(seen[0]) == 6
    assert seen[1] == pytest.approx(seen[0])
    assert seen[2] == pytest.approx(seen[0])


def test_the_batches_of_a_validation_are_counted():
    seen = []
    for kind in TRAINERS.values():
        noting = NotingCounts()
        trained(
            kind, demos.BoringModel(), callbacks=[noting], limit_train_batches=2,
            limit_val_batches=3, max_epochs=2, num_sanity_val_steps=0, enable_checkpointing=False,
        )  # fmt: skip
        seen.append(noting.validated)
    assert seen[0] == seen[1] == [(3, 3)] * 3


class SavedData(demos.BoringDataModule):
    def __init__(self, width=3, logger=True):
        super().__init__()
        self.save_hyperparameters("width", logger=logger)


class SavedModule(demos.BoringModel):
    def __init__(self, lr=0.5):
        super().__init__()
        self.save_hyperparameters()


@pytest.mark.parametrize("logger", [True, False])
def test_hyperparameters_of_a_data_module_are_logged_with_the_modules(logger, tmp_path):
    class Log(pl.loggers.CSVLogger):
        def log_hyperparams(self, params=None):
            logged.append(dict(params))

    seen = []
    for name, kind in TRAINERS.items():
        logged = []
        trained(
            kind, SavedModule(), SavedData(logger=logger), logger=Log(tmp_path / name),
            limit_train_batches=1, limit_val_batches=0, enable_checkpointing=False,
        )  # fmt: skip
        seen.append(logged)
    assert seen[0] == seen[1] == [{"lr": 0.5, **({"width": 3} if logger else {})}]


@pytest.mark.parametrize("is_training", [True, False])
def test_the_transformer_of_the_demos_is_the_same(is_training):
    """Its weights by name and for a seed, its outputs and its gradients are Lightning's."""
    found = []
    for package in (pl, ported):
        torch.manual_seed(1)
        net = package.demos.Transformer(vocab_size=50, ninp=16, nhid=8).train(is_training)
        inputs, targets = torch.randint(50, (2, 3, 7)).unbind()
        output = net(inputs, targets)
        output.sum().backward()
        found.append((net.state_dict(), output, [weight.grad for weight in net.parameters()]))
    (weights, output, gradients), (weights_here, output_here, gradients_here) = found
    assert [*weights] == [*weights_here]
    assert all(map(torch.equal, weights.values(), weights_here.values()))
    assert torch.equal(output, output_here)
    assert all(map(torch.equal, gradients, gradients_here))
