"""A run whose average is validated beside the training goes on exactly, wherever it was cut."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Evaluator
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.compat.accelerated.callbacks import ModelEmaCallback
from trainer_hooks.errors import TerminationSignal, TrainerHooksWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


class Counting(Callback):
    """Draws and counts in the average's validation."""

    def __init__(self) -> None:
        self.batches = 0

    def on_validation_batch_end(self, trainer, module, *args) -> None:
        self.batches += 1
        module.log("drawn", torch.rand(()), on_step=True, on_epoch=True)

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict) -> None:
        self.batches = state_dict["batches"]


class Breaking(Callback):
    """Ends the process's run amid the average's validation of the second epoch."""

    def __init__(self, action) -> None:
        self.action = action

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, *args) -> None:
        if trainer.current_epoch == 1 and batch_idx == 1:
            self.action(trainer)


def ema_of(kit, decay, name, **options):
    return ModelEmaCallback(decay, save_path=kit.folder / name, **options)


def one(kit, *more):
    val = DataLoader(
        kit.Samples(11), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(2)
    )
    stopper = EarlyStopping(
        "ema_model_val_loss", patience=9, check_on_train_epoch_end=True, verbose=False
    )
    callbacks = [ema_of(kit, 0.5, "ema.pt", callbacks=[Counting(), *more]), stopper]
    return kit.Setup(kit.Net(), DataLoader(kit.Samples(), 4, shuffle=True), val, {}, callbacks)


def two_over_evaluators(kit):
    setup = one(kit)

    class Net(kit.Net):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            super().validation_step(batch, batch_idx)

    setup.module = Net()
    setup.val = [
        Evaluator("a", setup.val),
        Evaluator("b", DataLoader(kit.Samples(6), 3), eval_interval="2ep"),
    ]
    setup.callbacks = [
        ema_of(kit, 0.5, "fast.pt", watch_metric="ema_model_val_loss/a"),
        ema_of(kit, 0.9, "slow.pt", watch_metric="slow_val_loss/a", prefix="slow_"),
    ]
    return setup


def in_the_epoch(kit):
    setup = one(kit)
    setup.options = {"val_check_interval": 2, "accumulate_grad_batches": 2}
    return setup


@pytest.mark.slow
@pytest.mark.parametrize("make", [one, two_over_evaluators, in_the_epoch])
def test_a_cut_anywhere_changes_nothing(lab, kit, make) -> None:
    """A resumed run ends with the uncut run's weights, averages, metrics and random numbers."""
    assert lab.check(lambda: make(kit)) >= 5


def interrupt(trainer) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def terminate(trainer) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def fail(trainer) -> None:
    raise ValueError("the disk of the data set is gone")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "error"),
    [(interrupt, KeyboardInterrupt), (terminate, TerminationSignal), (fail, ValueError)],
)
def test_broken_off_it_is_run_again_from_its_start(lab, kit, action, error, handlers) -> None:
    """What breaks off the average's validation leaves a checkpoint that is resumed exactly.

    An error does so inside `on_train_epoch_end`, and a resume warns that others had their turn.
    """

    def make(*more):
        setup = one(kit, *more)
        saver = ModelCheckpoint(kit.folder / "saved", save_on_exception=True, save_top_k=0)
        setup.callbacks.append(saver)
        return setup

    with pytest.raises(error):
        lab.run(lambda: make(Breaking(action)), "broken")
    (file,) = (kit.folder / "saved").glob("*.ckpt")
    uncut = lab.run(make, "uncut")
    is_told = error is not TerminationSignal  # a signal waits for a slot
    with (
        pytest.warns(TrainerHooksWarning, match="hooks of that moment|had had their turn")
        if (is_told)
        else nullcontext()
    ):
        resumed = lab.run(make, "resumed", file, seed=77)
    assert kit.differences(uncut.end, resumed.end) == []
    assert kit.differences(uncut.metrics, resumed.metrics) == []
    assert kit.differences(uncut.logged, resumed.logged) == []


@pytest.mark.slow
def test_a_checkpoint_saved_amid_it_is_resumed_exactly(lab, kit) -> None:
    """It has the training's weights as the module's, and the average as the average."""

    def make(action=lambda trainer: None):
        return one(kit, Breaking(action))

    path = kit.folder / "amid.ckpt"
    uncut = lab.run(lambda: make(lambda trainer: trainer.save_checkpoint(path)), "uncut")
    resumed = lab.run(make, "resumed", path, seed=77)
    assert kit.differences(uncut.end, resumed.end) == []


def test_alone_it_leaves_what_a_resume_finds(lab, kit) -> None:
    """Where it is the only saver, a signal leaves a file that `ckpt_path="last"` goes on from."""
    with pytest.raises(TerminationSignal):
        lab.run(lambda: one(kit, Breaking(terminate)), "broken")
    (left,) = kit.folder.glob("preempted-*.pt")
    resumed = lab.run(lambda: one(kit), "resumed", left, seed=77)
    saver = resumed.trainer.checkpoint_callback
    assert resumed.trainer.progress.epochs_completed == kit.EPOCHS
    assert set(saver.candidates(resumed.trainer)) == {str(kit.folder / "ema.pt"), str(left)}
