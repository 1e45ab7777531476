"""Layers that a callback adds to the module are there again when the training is resumed."""

from __future__ import annotations

import pytest
import torch
from own_loops import fit_by_run
from quiet_trainers import QUIET_OPTIONS
from saving_callbacks import SaveEachStep
from torch import nn

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import StochasticWeightAveraging, WeightAveraging
from trainer_hooks.compat.accelerated.callbacks import ModelEmaCallback
from trainer_hooks.errors import CallbackError, CheckpointError
from trainer_hooks.testing.nested_diff import nested_differences

BATCHES = [torch.arange(6.0).reshape(2, 3).sin() * number for number in range(1, 4)]


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def training_step(self, batch, batch_idx):
        features = self.layer(batch)
        probe = getattr(self, "probe", None)
        loss = features.square().mean()
        return loss if probe is None else loss + probe(features).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def add(module) -> None:
    module.probe = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))


class AddsInSetup(Callback):
    def setup(self, trainer, module, stage) -> None:
        add(module)


class AddsAtStart(Callback):
    """The layers are in no optimizer of the trainer; the callback trains them itself."""

    def on_fit_start(self, trainer, module) -> None:
        add(module)

    def on_train_batch_end(self, trainer, module, *_) -> None:
        with torch.no_grad():
            for parameter in module.probe.parameters():
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None


class AddsAndTrains(Callback):
    """The layers are in a group of the optimizer."""

    def on_fit_start(self, trainer, module) -> None:
        add(module)
        trainer.optimizers[0].add_param_group({"params": list(module.probe.parameters())})


@pytest.mark.parametrize("by_run", [False, True])
@pytest.mark.parametrize("adds", [AddsInSetup, AddsAtStart, AddsAndTrains])
def test_a_run_is_resumed_at_each_step(adds, by_run, bare, tmp_path) -> None:
    """With the weights and statistics that the layers had."""

    def fit(net, *callbacks, path=None):
        if by_run:
            more = {"callbacks": callbacks, "ckpt_path": path, "max_epochs": 2}
            return fit_by_run(net, BATCHES, **more, **QUIET_OPTIONS)
        trainer = bare(*callbacks, max_epochs=2)
        trainer.fit(net, BATCHES, ckpt_path=path)
        return trainer

    torch.manual_seed(2)
    whole = Net()
    trainer = fit(whole, adds(), SaveEachStep(tmp_path))
    states = trainer.optimizers[0].state_dict()
    for step in (1, 3, 5):
        torch.manual_seed(5)
        resumed = Net()
        again = fit(resumed, adds(), path=tmp_path / f"{step}.ckpt")
        assert nested_differences(dict(whole.state_dict()), dict(resumed.state_dict())) == []
        assert nested_differences(states, again.optimizers[0].state_dict()) == []


@pytest.mark.parametrize("adds", [AddsInSetup, AddsAtStart, AddsAndTrains])
def test_the_average_of_the_last_epochs_is_resumed(adds, bare, tmp_path) -> None:
    """It is restored when the layers are there, and holds them."""
    torch.manual_seed(2)

    def swa():
        return StochasticWeightAveraging(0.05, swa_epoch_start=1, annealing_epochs=1)

    whole, average = Net(), swa()
    bare(adds(), average, SaveEachStep(tmp_path), max_epochs=3).fit(whole, BATCHES)
    names = {name for name, _ in whole.named_parameters()}
    assert names == {name for name, _ in average._average_model.named_parameters()}
    assert "probe.0.weight" in names
    for step in (1, 4, 6):
        torch.manual_seed(5)
        resumed, again = Net(), swa()
        path = tmp_path / f"{step}.ckpt"
        bare(adds(), again, max_epochs=3).fit(resumed, BATCHES, ckpt_path=path)
        assert again.n_averaged == average.n_averaged == 3
        assert nested_differences(dict(whole.state_dict()), dict(resumed.state_dict())) == []


def test_a_save_before_the_average_is_restored_holds_it(bare, tmp_path) -> None:
    """As one on an error of a hook that opens the training."""

    class Fails(Callback):
        def on_fit_start(self, trainer, module) -> None:
            trainer.save_checkpoint(tmp_path / "again.ckpt")
            raise OSError("no disk")

    def callbacks():
        return AddsAtStart(), StochasticWeightAveraging(0.05, swa_epoch_start=1)

    bare(*callbacks(), SaveEachStep(tmp_path), max_epochs=3).fit(Net(), BATCHES)
    with pytest.raises(OSError, match="no disk"):
        bare(*callbacks(), Fails()).fit(Net(), BATCHES, ckpt_path=tmp_path / "5.ckpt")
    first, second = (
        torch.load(tmp_path / name, weights_only=True)["callbacks"]["StochasticWeightAveraging"]
        for name in ("5.ckpt", "again.ckpt")
    )
    assert first["n_averaged"] == 2
    assert nested_differences(first, second) == []


@pytest.mark.parametrize("make", [WeightAveraging, ModelEmaCallback])
def test_an_average_that_begins_before_the_layers_names_them(make, bare, tmp_path) -> None:
    """Before the first step, with the cure."""
    options = {"save_path": tmp_path / "x.pt", "evaluate_during_training": False}
    average = make(**options) if make is ModelEmaCallback else make()
    trainer = bare(AddsAtStart(), average, enable_checkpointing=True)
    words = rf"(?s)Net.*'probe.0.bias'.* in configure_model or in setup.*{make.__name__}"
    with pytest.raises(CallbackError, match=words):
        trainer.fit(Net(), BATCHES)
    assert trainer.global_step == 0


def test_a_preempted_run_starts_again_by_the_same_line(quiet_trainer, tmp_path) -> None:
    """With `ckpt_path="auto"`, twice: the file of a resumed run knows the layers, too."""
    from trainer_hooks.callbacks import ModelCheckpoint

    torch.manual_seed(2)
    whole = Net()
    quiet_trainer(callbacks=[AddsAtStart()], max_epochs=3).fit(whole, BATCHES)
    for epochs in (1, 2, 3):
        torch.manual_seed(2)
        net = Net()
        callbacks = [AddsAtStart(), ModelCheckpoint(tmp_path, save_last=True)]
        trainer = quiet_trainer(callbacks=callbacks, max_epochs=epochs, enable_checkpointing=True)
        trainer.fit(net, BATCHES, ckpt_path="auto")
        assert trainer.current_epoch == epochs
    assert nested_differences(dict(whole.state_dict()), dict(net.state_dict())) == []


class AddsAnother(Callback):
    def on_fit_start(self, trainer, module) -> None:
        module.probe = nn.Linear(2, 1)


@pytest.mark.parametrize(
    ("callbacks", "words"),
    [([], r"Unexpected key\(s\) in state_dict: probe.0"), ([AddsAnother()], "Missing key")],
)
def test_layers_that_do_not_come_are_an_error(callbacks, words, bare, tmp_path) -> None:
    """After `on_fit_start`, and the module is as it was: the layers are gone again."""
    bare(AddsAtStart(), SaveEachStep(tmp_path)).fit(Net(), BATCHES)
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(CheckpointError, match=words):
        bare(*callbacks).fit(net, BATCHES, ckpt_path=tmp_path / "2.ckpt")
    assert nested_differences(before, dict(net.state_dict())) == []


def test_other_weights_are_refused_before_any_hook(bare, tmp_path) -> None:
    """Only layers that a hook had added are waited for."""
    started = []

    class Notes(Callback):
        def on_fit_start(self, trainer, module) -> None:
            started.append(module)

    wide = Net()
    wide.probe = nn.Linear(2, 1)
    bare(SaveEachStep(tmp_path)).fit(wide, BATCHES)
    with pytest.raises(CheckpointError, match=r"Unexpected key\(s\) in state_dict: probe"):
        bare(Notes()).fit(Net(), BATCHES, ckpt_path=tmp_path / "2.ckpt")
    assert not started
