"""SaveBestModelCallback in runs, and what it saves between them."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.compat.accelerated.callbacks import SaveBestModelCallback
from trainer_hooks.errors import TerminationSignal
from trainer_hooks.testing import TinyModule


class InSecondEpoch(Callback):
    """Does something after the first batch of the second epoch, when the file is there."""

    def __init__(self, action) -> None:
        self.action = action

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.current_epoch == 1 and batch_idx == 0:
            self.action(trainer)


def test_a_checkpoint_asked_for_stands_beside_the_best(quiet_trainer, tmp_path) -> None:
    """It has a name of its own, and the best one stays as it is."""
    saver = SaveBestModelCallback(tmp_path / "best.pt")
    ask = InSecondEpoch(lambda trainer: trainer.request_checkpoint())
    trainer = quiet_trainer(callbacks=[saver, ask], enable_checkpointing=True, max_epochs=2)
    trainer.fit(TinyModule())
    assert {path.name for path in tmp_path.glob("*.pt")} == {"best.pt", "best-v1.pt"}
    assert saver.best_model_path == str(tmp_path / "best.pt")


@pytest.mark.parametrize("resumable", [True, False])
def test_a_run_that_makes_way_is_found_again(quiet_trainer, tmp_path, resumable) -> None:
    """A signal leaves all that a resume needs, which `ckpt_path="last"` finds; then it goes."""

    def make(*others):
        options = {"save_optimizer": resumable, "save_scheduler": resumable}
        saver = SaveBestModelCallback(tmp_path / "best.pt", **options)
        return quiet_trainer(callbacks=[saver, *others], enable_checkpointing=True, max_epochs=3)

    leave = InSecondEpoch(lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(TerminationSignal):
        make(leave).fit(TinyModule())
    (left,) = tmp_path.glob("preempted-*.pt")
    trainer = make()
    trainer.fit(TinyModule(), ckpt_path="last")
    assert trainer.ckpt_path == str(left)
    assert trainer.current_epoch == 3
    assert {path.name for path in tmp_path.glob("*.pt")} == {"best.pt"}


def test_it_is_a_model_checkpoint() -> None:
    """It is that callback, with other arguments, and pytorch-accelerated's defaults."""
    assert issubclass(SaveBestModelCallback, ModelCheckpoint)
    saver = SaveBestModelCallback()
    assert (saver.save_path, saver.watch_metric) == ("best_model.pt", "eval_loss_epoch")


def test_the_best_weights_are_in_the_file_and_in_the_module(trained, Scripted, tmp_path) -> None:
    """The second of three epochs is the best, so the fit ends with its weights."""
    path, kept = tmp_path / "best.pt", []

    class Keeping(Scripted):
        def on_train_epoch_end(self):
            kept.append({name: value.clone() for name, value in self.state_dict().items()})

    module, callback = Keeping(), SaveBestModelCallback(path)
    trained(callback, module)
    saved = torch.load(path, weights_only=True)
    assert (callback.best_model_path, callback.best_model_score) == (str(path), 1.0)
    assert saved["epoch"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["best.pt"]
    for name, value in module.state_dict().items():
        assert torch.equal(value, kept[1][name])
        assert torch.equal(value, saved["state_dict"][name])
    assert not torch.equal(module.layer.weight, kept[2]["layer.weight"])


def test_weights_alone_are_saved_and_not_loaded_if_so_wanted(trained, Scripted, tmp_path) -> None:
    """Without optimizers the file is one of weights; without a reload the last weights stay."""
    module = Scripted()
    path = tmp_path / "best.pt"
    callback = SaveBestModelCallback(
        path, save_optimizer=False, save_scheduler=False, load_saved_checkpoint=False
    )
    trained(callback, module)
    saved = torch.load(path, weights_only=True)
    assert "optimizer_states" not in saved
    assert not torch.equal(module.layer.weight, saved["state_dict"]["layer.weight"])


def test_a_greater_value_is_better_if_so_said(trained, Scripted, tmp_path) -> None:
    """The first epoch has the greatest loss."""
    callback = SaveBestModelCallback(tmp_path / "best.pt", "val_loss", greater_is_better=True)
    trained(callback, Scripted())
    assert callback.best_model_score == 3.0


@pytest.mark.parametrize(("reset", "best"), [(True, 2.0), (False, 1.0)])
def test_a_second_fit_replaces_the_file_if_that_is_wanted(
    trained, Scripted, reset, best, tmp_path
) -> None:
    """With `reset_on_train` the best of the first fit does not count in the second."""
    callback = SaveBestModelCallback(tmp_path / "best.pt", reset_on_train=reset)
    module = Scripted()
    trainer = trained(callback, module, max_epochs=2)
    trainer.max_epochs = 4
    trainer.fit(module)
    assert callback.best_model_score == best
