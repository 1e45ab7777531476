from __future__ import annotations

import csv
import warnings
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
import torch
from samples import spread
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, Timer
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.loggers import CSVLogger


class Scored(Module):
    """A line fitted to points, whose validation logs the scores that it is given, in turn."""

    def __init__(self, *scores):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)
        self.scores = scores
        self.validations = 0

    def training_step(self, batch, batch_idx):
        loss = (self.layer(batch) - 1).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        if not self.trainer.sanity_checking:
            self.log("val_loss", self.scores[self.validations])

    def on_validation_end(self):
        if not self.trainer.sanity_checking:
            self.validations += 1

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]

    def on_save_checkpoint(self, checkpoint):
        checkpoint["validations"] = self.validations

    def on_load_checkpoint(self, checkpoint):
        self.validations = checkpoint["validations"]


def read_step(path):
    """Return the optimizer steps of a checkpoint."""
    return torch.load(path, weights_only=True)["global_step"]


def points(count=8):
    generator = torch.Generator().manual_seed(1)
    return DataLoader(torch.randn(count, 2, generator=generator), batch_size=2)


def trainer_with(tmp_path, *callbacks, **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return Trainer(
        default_root_dir=tmp_path,
        accelerator="cpu",
        plugins=False,
        callbacks=list(callbacks),
        **{**quiet, **options},
    )


def fit(trainer, module, ckpt_path=None):
    trainer.fit(module, points(), points(2), ckpt_path=ckpt_path)
    return trainer


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_best_two_and_last(tmp_path):
    """Of four epochs the best two are kept beside last.ckpt, and `best` can be loaded."""
    saver = ModelCheckpoint(
        monitor="val_loss", save_top_k=2, save_last=True, filename="{epoch}-{val_loss:.1f}"
    )
    trainer = fit(trainer_with(tmp_path, saver, max_epochs=4), module := Scored(0.9, 0.5, 0.8, 0.7))
    folder = tmp_path / "checkpoints"
    assert files(folder) == ["epoch=1-val_loss=0.5.ckpt", "epoch=3-val_loss=0.7.ckpt", "last.ckpt"]
    assert trainer.checkpoint_callback is saver
    trainer.validate(module, points(2), ckpt_path="best", verbose=False)
    assert module.validations == 3  # two when the best was saved, and this one


@pytest.mark.parametrize(
    ("options", "interval", "steps"),
    [
        ({"every_n_train_steps": 2}, 1.0, [2, 4, 6, 8]),
        ({"every_n_train_steps": 3}, 1.0, [3, 6]),
        ({"every_n_epochs": 2}, 1.0, [8]),
        ({}, 0.5, [2, 4, 6, 8]),
        ({}, 1, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"train_time_interval": timedelta(microseconds=1)}, 1.0, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_when_it_saves(tmp_path, options, interval, steps):
    """The triggers save after the batches that they name."""
    saver = ModelCheckpoint(save_top_k=-1, filename="{step:02d}", **options)
    trainer = trainer_with(tmp_path, saver, max_epochs=2, val_check_interval=interval)
    fit(trainer, Scored(*range(8)))
    assert files(tmp_path / "checkpoints") == [f"step={step:02d}.ckpt" for step in steps]


def test_step_save_at_the_end_of_an_epoch_has_the_fresh_score(tmp_path):
    """A save on an epoch's last step is ranked by that epoch's validation."""
    saver = ModelCheckpoint(
        monitor="val_loss", save_top_k=-1, every_n_train_steps=4, filename="{step}"
    )
    fit(trainer_with(tmp_path, saver, max_epochs=2), Scored(3.0, 2.0))
    assert [(Path(p).name, s.item()) for p, s in saver.best_k_models.items()] == [
        ("step=4.ckpt", 3.0),
        ("step=8.ckpt", 2.0),
    ]


class Breaks(Callback):
    """Raises after so many batches."""

    def __init__(self, error, after):
        self.error, self.after = error, after

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == self.after:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), SystemExit(1)])
def test_exception_checkpoint_can_be_resumed(tmp_path, error):
    """What is left by a run that breaks off in a batch can be gone on with, and says what it is."""
    whole = Scored(4.0, 3.0)
    fit(trainer_with(tmp_path / "a", max_epochs=2), whole)
    saver = ModelCheckpoint(tmp_path / "b", save_on_exception=True)
    with pytest.raises(type(error)):
        fit(trainer_with(tmp_path, saver, Breaks(error, 6), max_epochs=2), Scored(4.0, 3.0))
    assert saver.last_exception_path == str(tmp_path / "b" / "exception-epoch=1-step=6.ckpt")
    resumed = Scored(4.0, 3.0)
    again = ModelCheckpoint(tmp_path / "b")
    with pytest.warns(TrainerHooksWarning, match="saved inside batch 2 of epoch 1"):
        fit(trainer_with(tmp_path, again, max_epochs=2), resumed, saver.last_exception_path)
    assert torch.equal(resumed.layer.weight, whole.layer.weight)


@pytest.mark.parametrize(
    ("filename", "every", "after"),
    spread(product(["own", "{step}", "{epoch}"], [1, 2, 3]), range(1, 8)),
)
def test_a_run_that_goes_on_from_an_error_has_the_names_of_one_without(
    tmp_path, after, filename, every
):
    """It writes over the file of the error; one under a name that it never uses is left."""
    options = {"filename": filename, "every_n_train_steps": every, "save_top_k": -1}
    uncut = ModelCheckpoint(tmp_path / "a", **options)
    fit(trainer_with(tmp_path, uncut, max_epochs=2), Scored(4.0, 3.0))
    saver = ModelCheckpoint(tmp_path / "b", **options, save_on_exception=True)
    with pytest.raises(RuntimeError, match="x"):
        broken = Breaks(RuntimeError("x"), after)
        fit(trainer_with(tmp_path, saver, broken, max_epochs=2), Scored(4.0, 3.0))
    left = saver.last_exception_path
    again = ModelCheckpoint(tmp_path / "b", **options, save_on_exception=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the checkpoint was saved inside batch")
        fit(trainer_with(tmp_path, again, max_epochs=2), Scored(4.0, 3.0), left)
    whole = {path.name: read_step(path) for path in (tmp_path / "a").iterdir()}
    found = {path.name: read_step(path) for path in (tmp_path / "b").iterdir()}
    extra = {name: step for name, step in found.items() if name not in whole}
    assert found.items() >= whole.items()
    assert list(extra) in ([], [Path(left).name])
    assert ("left_by_error" in again.state_dict()) == bool(extra)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_resumed_run_ends_with_the_same_states(tmp_path, cut):
    """Savers and controllers of a resumed run end with the state of the run that was not cut."""
    scores, ends = (5.0, 4.0, 6.0, 3.0, 3.5), []
    for name, stages in (("whole", (5,)), ("parts", (cut, 5))):
        folder, path = tmp_path / name, None
        for epochs in stages:
            saver = ModelCheckpoint(folder, "{epoch}", "val_loss", save_top_k=2, save_last=True)
            stopper = EarlyStopping("val_loss", patience=3)
            trainer = trainer_with(tmp_path, saver, stopper, max_epochs=epochs)
            fit(trainer, module := Scored(*scores), path)
            path = saver.last_model_path
        states = str((saver.state_dict(), stopper.state_dict())).replace(str(folder), "")
        ends.append((files(folder), states, module.layer.weight.tolist()))
    assert ends[0] == ends[1]


def test_early_stopping_stops_and_a_resume_of_it_too(tmp_path):
    """A run stops when the metric no longer improves; resumed, it trains no further."""
    saver = ModelCheckpoint(save_last=True)
    stopper = EarlyStopping("val_loss", patience=2)
    scores = (2.0, 1.0, 1.5, 1.5, 0.1)
    trainer = fit(trainer_with(tmp_path, stopper, saver, max_epochs=9), Scored(*scores))
    assert (trainer.current_epoch, trainer.global_step) == (4, 16)
    assert trainer.stop_reason.startswith("EarlyStopping: val_loss did not improve in 2 checks")
    for patience, epochs in ((2, 4), (3, 5)):
        stopper = EarlyStopping("val_loss", patience=patience)
        again = trainer_with(tmp_path, stopper, ModelCheckpoint(save_last=True), max_epochs=5)
        fit(again, Scored(*scores), saver.last_model_path)
        assert again.current_epoch == epochs


def test_early_stopping_heeds_min_epochs_and_recovers(tmp_path):
    """Before min_epochs a request waits, and an improvement withdraws it."""
    stopper = EarlyStopping("val_loss", patience=1)
    trainer = trainer_with(tmp_path, stopper, min_epochs=3, max_epochs=9)
    fit(trainer, Scored(2.0, 3.0, 1.0, 0.5, 0.6))
    assert (trainer.current_epoch, stopper.stopped_epoch) == (5, 4)


def test_timer_without_time_trains_nothing(tmp_path):
    """A duration of zero ends the fit before its first batch."""
    trainer = fit(trainer_with(tmp_path, Timer(timedelta(0)), max_epochs=2), Scored(1.0, 1.0))
    assert trainer.global_step == 0
    assert "is up" in trainer.stop_reason


@pytest.mark.slow
def test_learning_rates_stand_beside_the_losses(tmp_path):
    """A rate that is logged at steps has the place on the x axis of that step's loss."""
    logger = CSVLogger(tmp_path)
    monitor = LearningRateMonitor("step", log_momentum=True)
    fit(
        trainer_with(tmp_path, monitor, logger=logger, max_epochs=2, log_every_n_steps=2),
        Scored(1.0, 1.0),
    )
    table = (Path(logger.log_dir) / "metrics.csv").read_text()
    rows = list(csv.DictReader(table.splitlines()))
    rates = {int(row["step"]): float(row["lr-SGD"]) for row in rows if row["lr-SGD"]}
    assert rates == {1: 0.1, 3: 0.1, 5: 0.05, 7: 0.05}
    assert [int(row["step"]) for row in rows if row["loss"]] == list(rates)
    assert {row["lr-SGD-momentum"] for row in rows} == {"0.9", ""}


def test_default_checkpointing(tmp_path):
    """A trainer that is given no saver keeps the newest epoch's checkpoint."""
    fit(trainer_with(tmp_path, max_epochs=2), Scored(1.0, 1.0))
    assert files(tmp_path / "checkpoints") == ["epoch=1-step=8.ckpt"]


def test_fast_dev_run_leaves_nothing(tmp_path):
    """fast_dev_run with every saver and controller writes no file."""
    callbacks = (
        ModelCheckpoint(monitor="val_loss"),
        EarlyStopping("nothing"),
        LearningRateMonitor(),
    )
    fit(trainer_with(tmp_path, *callbacks, fast_dev_run=True), Scored(1.0, 1.0))
    assert files(tmp_path) == []
