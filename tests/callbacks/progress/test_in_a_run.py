"""The bars, the summary, the lambda callback and the CSV logger in the trainer's own runs."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks.callbacks import LambdaCallback, ModelSummary, RichProgressBar, TQDMProgressBar
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.module.module import Module
from trainer_hooks.trainer.trainer import Trainer


class Line(Module):
    """A module whose loss is known: the batch's mean."""

    def __init__(self, width=4):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Sequential(torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 1))

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, batch_idx):
        self.log("train_loss", batch.mean(), prog_bar=True, on_step=True)
        return self(batch).pow(2).mean()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", batch.mean() / 2, prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.log("test_loss", batch.mean() / 4, prog_bar=True)

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture(params=[TQDMProgressBar, RichProgressBar])
def bar(request):
    """A bar of each kind."""
    return request.param()


@pytest.fixture
def loader():
    """Ten batches, the last of which has a mean of 9."""
    return DataLoader(torch.arange(10.0).repeat_interleave(8).view(20, 4), batch_size=2)


@pytest.fixture
def trainer(tmp_path):
    """A function that makes a quiet trainer for two epochs."""

    def make(*callbacks, **options):
        defaults = {
            "max_epochs": 2,
            "default_root_dir": tmp_path,
            "enable_model_summary": None,
            "enable_checkpointing": False,
            "logger": False,
            "plugins": False,
        }
        return Trainer(callbacks=callbacks, **{**defaults, **options})

    return make


def test_screen_after_each_run(bar, terminal, trainer, loader):
    """fit, validate, test and predict leave a line each, with counts and their metrics."""
    runner = trainer(bar, enable_model_summary=False)
    runner.fit(Line(), loader, loader)
    [line] = terminal.screen
    for part in ("Epoch 1/1", "10/10", "train_loss=9", "val_loss=2.25"):
        assert part in line
    runner.validate(dataloaders=loader, verbose=False)
    runner.test(dataloaders=loader, verbose=False)
    runner.predict(dataloaders=[loader, loader])
    _, validated, tested, predicted = terminal.screen
    assert "Validation" in validated
    assert "10/10" in validated
    assert "test_loss=1.125" in tested
    assert "Predicting DataLoader 1" in predicted
    assert not terminal.cursor_is_hidden


def test_resume_in_the_middle(bar, terminal, trainer, loader, tmp_path):
    """A run resumed from the middle of an epoch is shown from there on."""
    path = tmp_path / "middle.ckpt"

    def save(runner, module):
        if runner.global_step == 16:
            runner.save_checkpoint(path)

    first = LambdaCallback(on_batch_checkpoint=save)
    trainer(first, enable_progress_bar=False, enable_model_summary=False).fit(Line(), loader)
    assert terminal.screen == []
    screens = []
    look = LambdaCallback(on_train_batch_start=lambda *_: screens.append(terminal.screen))
    runner = trainer(look, bar, enable_model_summary=False)
    runner.fit(Line(), loader, ckpt_path=path)
    assert len(screens) == 4
    assert "Epoch 1/1" in screens[0][-1]
    assert "6/10" in screens[0][-1]
    assert "10/10" in terminal.screen[-1]


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_validation_batch_start"])
def test_exception_in_a_run(bar, terminal, trainer, loader, hook):
    """After an exception the bars are closed, and the same trainer and bar fit again."""
    seen = []

    def fail(runner, module, batch, batch_idx):
        seen.append(batch_idx)
        if len(seen) == 3:
            raise RuntimeError("on purpose")

    runner = trainer(LambdaCallback(**{hook: fail}), bar, enable_model_summary=False)
    with pytest.raises(RuntimeError, match="on purpose"):
        runner.fit(Line(), loader, loader)
    assert not terminal.cursor_is_hidden
    before = len(terminal.screen)
    runner.fit(Line(), loader, loader)
    assert len(terminal.screen) == before + 1
    assert "10/10" in terminal.screen[-1]


def test_prints_of_a_run(bar, terminal, trainer, loader):
    """trainer.print goes above the bar, and the summary does too."""
    say = LambdaCallback(on_train_epoch_end=lambda runner, module: runner.print("said"))
    trainer(bar, say).fit(Line(), loader)
    screen = terminal.screen
    assert any(re.findall(r"\w+", line) == ["Name", "Type", "Params", "Mode"] for line in screen)
    assert screen[-3:-1] == ["said", "said"]
    assert "10/10" in screen[-1]


def test_summary_changes_nothing(trainer, loader, capsys):
    """A run with the summary, its example input and a bar has the weights of one without."""
    weights = []
    for shows in (False, True):
        torch.manual_seed(1)
        module = Line()
        if shows:
            module.example_input_array = torch.ones(2, 4)
        runner = trainer(
            *([ModelSummary(max_depth=-1)] if shows else []),
            enable_model_summary=shows,
            enable_progress_bar=shows,
        )
        runner.fit(module, DataLoader(loader.dataset, batch_size=2, shuffle=True))
        weights.append(module.state_dict())
    assert "[2, 4]" in capsys.readouterr().out
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("fails", [False, True])
def test_csv_of_a_run(trainer, loader, tmp_path, fails):
    """A run's metrics are in its CSV file when it is over, also when it failed."""

    def fail(runner, module):
        if fails and runner.current_epoch == 1:
            raise RuntimeError("on purpose")

    runner = trainer(
        LambdaCallback(on_train_epoch_end=fail),
        logger=CSVLogger(tmp_path, name="runs"),
        log_every_n_steps=5,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    if fails:
        with pytest.raises(RuntimeError, match="on purpose"):
            runner.fit(Line(), loader, loader)
    else:
        runner.fit(Line(), loader, loader)
    assert runner.log_dir == str(tmp_path / "runs/version_0")
    with Path(runner.log_dir, "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    steps = [(row["step"], row["train_loss"]) for row in rows if row["train_loss"]]
    assert steps == [("4", "4.0"), ("9", "9.0"), ("14", "4.0"), ("19", "9.0")]
    assert [row["val_loss"] for row in rows if row["val_loss"]] == ["2.25"] * 2
    assert json.loads(Path(runner.log_dir, "hparams.json").read_text()) == {"width": 4}


def test_default_bar(terminal, trainer, loader):
    """A trainer that was told nothing shows its progress with tqdm."""
    runner = trainer(enable_model_summary=False)
    assert isinstance(runner.progress_bar_callback, TQDMProgressBar)
    runner.fit(Line(), loader)
    assert "10/10" in terminal.screen[0]
