"""Callbacks that write into the module, or change a checkpoint, while it is restored."""

from __future__ import annotations

import contextlib
import copy
import random

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import EMAWeightAveraging, OnExceptionCheckpoint, WeightAveraging
from trainer_hooks.compat.lightning import Callback as PortedCallback
from trainer_hooks.errors import CallbackError, TrainerHooksWarning

BATCHES = 3


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)
        self.losses = []

    def training_step(self, batch, batch_idx):
        loss = (self.norm(self.layer(batch[0])) - 1).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


def rows() -> DataLoader:
    rows = torch.randn(BATCHES * 4, 2, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(rows), batch_size=4)


def shadowing(base, hook):
    """Return a callback whose checkpoints hold other weights than those that train.

    It puts the present ones beside them, and back in `hook`.
    """

    class Shadows(base):
        def setup(self, trainer, module, stage):
            self.module, self.kept = module, None

        def on_save_checkpoint(self, trainer, module, checkpoint):
            # not the checkpoint's own dict: other callbacks may change that
            checkpoint["own_weights"] = copy.deepcopy(dict(checkpoint["state_dict"]))
            checkpoint["state_dict"] = {
                name: torch.zeros_like(value) for name, value in checkpoint["state_dict"].items()
            }

        def on_load_checkpoint(self, trainer, module, checkpoint):
            self.kept = checkpoint["own_weights"]
            self.put_back("on_load_checkpoint")

        def state_dict(self):
            return {"some": 1}

        def load_state_dict(self, state_dict):
            self.put_back("load_state_dict")

        def on_fit_start(self, trainer, module):
            if self.kept is not None:
                self.put_back("on_fit_start")

        def put_back(self, present):
            if present == hook:
                self.module.load_state_dict(self.kept)

    return Shadows


WRITERS = {
    "on_load_checkpoint": lambda: shadowing(Callback, "on_load_checkpoint")(),
    "ported on_load_checkpoint": lambda: shadowing(PortedCallback, "on_load_checkpoint")(),
    "ported load_state_dict": lambda: shadowing(PortedCallback, "load_state_dict")(),
    "on_fit_start": lambda: shadowing(Callback, "on_fit_start")(),
    "average": WeightAveraging,
    "moving average": lambda: EMAWeightAveraging(decay=0.5),
}


class Cut(Exception):
    """Ends a run."""


class Saves(Callback):
    def __init__(self, at, path) -> None:
        self.at, self.path = at, path

    def on_batch_checkpoint(self, trainer, module):
        if trainer.progress.batches_completed == self.at:
            trainer.save_checkpoint(self.path)
            raise Cut


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_the_run_goes_on_with_the_weights_that_it_had(kind, quiet_trainer, tmp_path) -> None:
    """Cut and resumed up to three times at drawn batches, it is the uncut run, bit for bit."""

    def train(at, path):
        torch.manual_seed(0 if path is None else 1)
        module = Net()
        trainer = quiet_trainer(
            callbacks=[WRITERS[kind](), Saves(at, tmp_path / f"{at}.ckpt")],
            plugins=False,
            max_epochs=3,
        )
        with contextlib.suppress(Cut):
            trainer.fit(module, rows(), ckpt_path=path)
        return module, trainer

    uncut, one = train(None, None)
    for seed in range(3):
        source = random.Random(f"{kind} {seed}")
        path, losses = None, []
        for at in (*sorted(source.sample(range(1, 3 * BATCHES), seed + 1)), None):
            module, other = train(at, path)
            losses += module.losses
            path = tmp_path / f"{at}.ckpt"
        assert losses == uncut.losses, seed
        for name, value in module.state_dict().items():
            assert torch.equal(value, uncut.state_dict()[name]), (seed, name)
        ours, theirs = (
            trainer.optimizers[0].state_dict()["state"][0]["exp_avg"] for trainer in (one, other)
        )
        assert torch.equal(ours, theirs)


class Validated(Net):
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", (self.norm(self.layer(batch[0])) - 1).square().mean())


class CutsInside(Callback):
    """Cuts the run as the second validation begins."""

    def on_validation_epoch_start(self, trainer, module):
        if trainer.progress.batches_completed == 2 * BATCHES:
            raise Cut


def lightning_average():
    pl = pytest.importorskip("pytorch_lightning")
    return pl.callbacks.EMAWeightAveraging(decay=0.5)


AVERAGES = {"ours": lambda: EMAWeightAveraging(decay=0.5), "Lightning's": lightning_average}


@pytest.mark.parametrize("kind", AVERAGES)
@pytest.mark.filterwarnings("ignore:::pytorch_lightning")
def test_a_save_while_the_module_has_the_average(kind, quiet_trainer, tmp_path) -> None:
    """A checkpoint from inside a validation goes on with the weights in training."""

    def train(*callbacks, path=None):
        torch.manual_seed(0)
        module = Validated()
        trainer = quiet_trainer(
            callbacks=[AVERAGES[kind](), *callbacks, OnExceptionCheckpoint(tmp_path, "x")],
            plugins=False,
            enable_checkpointing=None,
            max_epochs=3,
            limit_val_batches=1,
            num_sanity_val_steps=1,
        )
        trainer.fit(module, rows(), rows(), ckpt_path=path)
        return module

    uncut = train()
    with pytest.raises(Cut):
        train(CutsInside())
    module = train(path=tmp_path / "x.ckpt")
    assert module.losses == uncut.losses[2 * BATCHES :]
    for name, value in module.state_dict().items():
        assert torch.equal(value, uncut.state_dict()[name]), name


@pytest.mark.parametrize("other", [WeightAveraging, lightning_average])
@pytest.mark.filterwarnings("ignore:::pytorch_lightning")
def test_two_averages_are_refused(other, quiet_trainer) -> None:
    """An average of Lightning's and another one would have the same keys in a checkpoint."""

    class Another(type(lightning_average())):
        pass

    trainer = quiet_trainer(callbacks=[Another(), other()], plugins=False)
    with pytest.raises(CallbackError, match="only one callback can average"):
        trainer.fit(Validated(), rows(), rows())


@pytest.fixture
def saved(quiet_trainer, tmp_path):
    """The checkpoint of a trained module, and its weights."""
    module, trainer = Net(), quiet_trainer(plugins=False)
    trainer.fit(module, rows())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    return tmp_path / "x.ckpt", module.layer.weight.detach().clone()


@pytest.mark.parametrize("fn", ["fit", "predict"])
def test_the_hooks_lie_around_the_weights(fn, saved, quiet_trainer) -> None:
    """`on_before_restore` finds the module's own, `on_load_checkpoint` those of the checkpoint."""
    path, weights = saved
    has_weights = {}

    class Looks(Callback):
        def on_before_restore(self, trainer, module, checkpoint):
            has_weights["before"] = torch.equal(module.layer.weight, weights)

        def on_load_checkpoint(self, trainer, module, checkpoint):
            has_weights["at"] = torch.equal(module.layer.weight, weights)

    class Predicts(Net):
        def predict_step(self, batch, batch_idx):
            return batch[0]

        def on_load_checkpoint(self, checkpoint):
            has_weights["module's"] = torch.equal(self.layer.weight, weights)

    trainer = quiet_trainer(callbacks=[Looks()], plugins=False, max_epochs=2)
    getattr(trainer, fn)(Predicts(), rows(), ckpt_path=path)
    assert has_weights == {"module's": False, "before": False, "at": True}


def test_weights_are_changed_before_they_are_restored(saved, quiet_trainer) -> None:
    """Names that a callback changes in `on_before_restore` are those that are compared."""
    path, weights = saved

    class Renamed(Net):
        def __init__(self) -> None:
            super().__init__()
            # in the same order, in which the optimizer knows its parameters
            self.linear, self.norm = self.layer, self._modules.pop("norm")
            del self.layer

        def training_step(self, batch, batch_idx):
            return self.norm(self.linear(batch[0])).mean()

    class Renames(Callback):
        def on_before_restore(self, trainer, module, checkpoint):
            checkpoint["state_dict"] = {
                name.replace("layer", "linear"): value
                for name, value in checkpoint["state_dict"].items()
            }

        def on_fit_start(self, trainer, module):
            assert torch.equal(module.linear.weight, weights)

    trainer = quiet_trainer(callbacks=[Renames()], plugins=False, max_epochs=2)
    trainer.fit(Renamed(), rows(), ckpt_path=path)
    assert trainer.progress.epochs_completed == 2


@pytest.mark.parametrize("how", ["the dict", "a value"])
def test_weights_that_are_changed_too_late_are_told(how, saved, quiet_trainer) -> None:
    """In `on_load_checkpoint` the module has them already, which one warning says."""
    path, weights = saved

    class Late(Callback):
        def on_load_checkpoint(self, trainer, module, checkpoint):
            if how == "a value":
                checkpoint["state_dict"]["layer.weight"] = torch.zeros(2, 2)
            else:
                checkpoint["state_dict"] = {}

        def on_fit_start(self, trainer, module):
            assert torch.equal(module.layer.weight, weights)

    trainer = quiet_trainer(callbacks=[Late()], plugins=False, max_epochs=2)
    with pytest.warns(TrainerHooksWarning, match="this has no effect. Change it in on_before_rest"):
        trainer.fit(Net(), rows(), ckpt_path=path)
