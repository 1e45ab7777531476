"""Buffers that no `state_dict` holds, and that a training changes, are resumed."""

from __future__ import annotations

import pytest
import torch
from own_loops import fit_by_run
from quiet_trainers import QUIET_OPTIONS
from saving_callbacks import SaveEachStep
from torch import nn

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import (
    EMAWeightAveraging,
    StochasticWeightAveraging,
    WeightAveraging,
)
from trainer_hooks.compat.accelerated.callbacks import ModelEmaCallback
from trainer_hooks.testing.nested_diff import nested_differences

BATCHES = [torch.arange(8.0).reshape(2, 4).sin() * number for number in range(1, 5)]


class Memory(nn.Module):
    """A queue in place, a mean that is made anew, and a mask that never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(5, 4), persistent=False)
        self.register_buffer("mean", None, persistent=False)
        self.register_buffer("mask", torch.ones(4), persistent=False)

    def forward(self, inputs):
        before = self.queue.mean(0) if self.mean is None else self.mean
        with torch.no_grad():
            self.queue.copy_(torch.cat([inputs * 2, self.queue])[:5])
            self.mean = self.queue[:3].mean(0)
        return inputs + before * self.mask


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory, self.layer = Memory(), nn.Linear(4, 1)
        nn.init.constant_(self.layer.weight, 0.3)
        nn.init.constant_(self.layer.bias, 0.1)
        self.seen: list[list[float]] = []

    def on_train_start(self) -> None:
        # as a resume does once more
        self.memory.queue.fill_(0.5)

    def training_step(self, batch, batch_idx):
        self.seen.append(self.memory.queue.flatten().tolist())
        return self.layer(self.memory(batch)).square().mean()

    def validation_step(self, batch, batch_idx) -> None:
        self.log("far", self.layer(self.memory(batch)).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class SaveInValidation(Callback):
    """Saves inside each validation, whose batches change the buffers."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def on_validation_batch_end(self, trainer, module, *_) -> None:
        if not trainer.sanity_checking:
            trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")


@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook")
@pytest.mark.parametrize("saver", [SaveEachStep, SaveInValidation])
@pytest.mark.parametrize("sanity_steps", [0, 1])
def test_a_run_is_resumed_at_each_step(bare, tmp_path, saver, sanity_steps) -> None:
    """With a sanity check, which leaves no trace, and from inside a validation."""
    options = {"max_epochs": 2, "num_sanity_val_steps": sanity_steps, "val_check_interval": 2}
    whole = Net()
    bare(saver(tmp_path), **options).fit(whole, BATCHES, BATCHES[:2])
    files = sorted(tmp_path.glob("*.ckpt"))
    assert len(files) > 3
    for path in files:
        resumed = Net()
        bare(**options).fit(resumed, BATCHES, BATCHES[:2], ckpt_path=path)
        steps = int(path.stem)
        assert resumed.seen == whole.seen[steps:]
        assert nested_differences(dict(whole.state_dict()), dict(resumed.state_dict())) == []


@pytest.mark.parametrize("name", ["own loop", "later fit"])
def test_other_ways_to_train_are_resumed(bare, tmp_path, name) -> None:
    """A loop by `Run`, and a file that is saved after a fit."""

    def fit(net, *callbacks, path=None, epochs=2):
        if name == "own loop":
            more = {"callbacks": callbacks, "ckpt_path": path, "max_epochs": epochs}
            return fit_by_run(net, BATCHES, BATCHES[:1], **more, **QUIET_OPTIONS)
        trainer = bare(*callbacks, max_epochs=epochs)
        trainer.fit(net, BATCHES, BATCHES[:1], ckpt_path=path)
        return trainer

    whole, resumed = Net(), Net()
    if name == "later fit":
        fit(whole, epochs=1).save_checkpoint(tmp_path / "4.ckpt")
        whole = Net()
        fit(whole)
        steps = 4
    else:
        fit(whole, SaveEachStep(tmp_path))
        steps = 3
    fit(resumed, path=tmp_path / f"{steps}.ckpt")
    assert resumed.seen == whole.seen[steps:]
    assert torch.equal(whole.layer.weight, resumed.layer.weight)


def test_a_file_holds_the_changed_buffers_alone(bare, tmp_path) -> None:
    """Not among the weights, and not the mask."""
    bare(SaveEachStep(tmp_path)).fit(Net(), BATCHES)
    checkpoint = torch.load(tmp_path / "4.ckpt", weights_only=True)
    assert set(checkpoint["state_dict"]) == {"layer.weight", "layer.bias"}
    state = checkpoint["trainer_hooks"]["extra_buffers"]
    assert set(state["changed"]) == {"memory.queue", "memory.mean"}
    assert set(state["began"]) == {"memory.queue", "memory.mask"}


class AtEpochEnds(WeightAveraging):
    """Between two updates its copy's buffers differ from the module's."""

    def should_update(self, step_idx=None, epoch_idx=None):
        return epoch_idx is not None


AVERAGING = {
    "mean": lambda folder: AtEpochEnds(),
    "buffers of the last update": lambda folder: AtEpochEnds(use_buffers=False),
    "every third step": lambda folder: EMAWeightAveraging(decay=0.5, update_every_n_steps=3),
    "swa": lambda folder: StochasticWeightAveraging(0.02, swa_epoch_start=2, annealing_epochs=1),
    "validated": lambda folder: ModelEmaCallback(
        0.5, save_path=folder / "ema.pt", watch_metric="ema_model_far"
    ),
}


def averaged(callback) -> nn.Module:
    """Return an averaging callback's copy of the module."""
    if isinstance(callback, ModelEmaCallback):
        return callback.ema_model.module
    if isinstance(callback, StochasticWeightAveraging):
        return callback._average_model
    return callback.averaged_module


@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook")
@pytest.mark.parametrize("saver", [SaveEachStep, SaveInValidation])
@pytest.mark.parametrize("name", AVERAGING)
def test_the_copy_of_an_averaging_callback_is_resumed(bare, tmp_path, name, saver) -> None:
    """With its own buffers, which are those of its last update, until the next and at the end."""
    make = AVERAGING[name]
    options = {"max_epochs": 3, "val_check_interval": 2, "enable_checkpointing": True}
    whole, average = Net(), make(tmp_path)
    bare(average, saver(tmp_path), **options).fit(whole, BATCHES, BATCHES[:2])
    expected = dict(averaged(average).named_buffers())
    files = sorted(tmp_path.glob("*.ckpt"))
    assert len(files) > 5
    for path in files[::2] if len(files) < 8 else files[1::4]:
        resumed, again = Net(), make(tmp_path)
        bare(again, **options).fit(resumed, BATCHES, BATCHES[:2], ckpt_path=path)
        assert resumed.seen == whole.seen[int(path.stem) :]
        assert nested_differences(dict(whole.state_dict()), dict(resumed.state_dict())) == []
        buffers = dict(averaged(again).named_buffers())
        assert nested_differences(expected, buffers) == []


def test_a_file_holds_the_changed_buffers_of_the_copy_alone(bare, tmp_path) -> None:
    """Not the mask, and nothing where Lightning reads the average."""
    bare(AtEpochEnds(), SaveEachStep(tmp_path), max_epochs=2).fit(Net(), BATCHES)
    checkpoint = torch.load(tmp_path / "6.ckpt", weights_only=True)
    (state,) = checkpoint["callbacks"].values()
    assert set(state["average_buffers"]) == {"memory.queue", "memory.mean"}
    assert set(checkpoint["averaging_state"]) == {"n_averaged"}


class Growing(Module):
    """A memory that is empty at first, and has one more row after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", None, persistent=False)
        self.layer = nn.Linear(4, 1)
        self.register_buffer("scale", torch.ones(1))

    def training_step(self, batch, batch_idx):
        newest = batch.mean(0, keepdim=True)
        before = newest * 0 if self.rows is None else self.rows
        self.rows = torch.cat([before, newest])
        return self.layer(batch + before.mean(0)).square().mean()

    def validation_step(self, batch, batch_idx) -> None:
        mean = 0 if self.rows is None else self.rows.mean()
        self.log("far", self.layer(batch + mean).square().mean())

    configure_optimizers = Net.configure_optimizers


@pytest.mark.parametrize("name", AVERAGING)
def test_a_buffer_that_grows_can_be_averaged(bare, tmp_path, name) -> None:
    """The copy takes it as it is at each update, and a resume goes on with it."""
    make, options = AVERAGING[name], {"max_epochs": 3, "enable_checkpointing": True}
    whole, average = Growing(), make(tmp_path)
    bare(average, SaveEachStep(tmp_path), **options).fit(whole, BATCHES, BATCHES[:1])
    rows = {"every third step": 11, "swa": 9}.get(name, 13)
    assert averaged(average).rows.shape == (rows, 4)
    for step in (2, 7, 11):
        resumed, again = Growing(), make(tmp_path)
        path = tmp_path / f"{step}.ckpt"
        bare(again, **options).fit(resumed, BATCHES, BATCHES[:1], ckpt_path=path)
        assert nested_differences(dict(whole.state_dict()), dict(resumed.state_dict())) == []
        assert torch.equal(averaged(average).rows, averaged(again).rows)
        assert torch.equal(whole.rows, resumed.rows)
