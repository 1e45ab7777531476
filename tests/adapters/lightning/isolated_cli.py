"""Lightning's own LightningCLI with a Trainer of trainer_hooks."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

import pytest
import torch

import trainer_hooks
from trainer_hooks.adapters import lightning_cli_trainer
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

pl = pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")
LightningCLI = pytest.importorskip("pytorch_lightning.cli").LightningCLI

pytestmark = pytest.mark.filterwarnings("ignore")

IMPORTS = ("pytorch_lightning.cli",)
QUIET = ["--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]


class Net(pl.LightningModule):
    """One layer, whose data are its own."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("loss", self.layer(batch).square().mean())

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.arange(32.0).reshape(8, 4) / 32, batch_size=4)

    val_dataloader = train_dataloader

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


@pytest.fixture(autouse=True)
def _no_arguments(monkeypatch):
    # Lightning warns of arguments of the process beside those of the call
    monkeypatch.setattr(sys, "argv", ["train.py"])


def run(trainer_class: type, folder: Path, *words: str, **options: object) -> LightningCLI:
    """Run Lightning's command line."""
    words = (*words, *QUIET, f"--trainer.default_root_dir={folder}", "--seed_everything=3")
    return LightningCLI(Net, args=[*words], trainer_class=trainer_class, **options)


SHORT = [
    "--trainer.callbacks=LearningRateMonitor",
    "--trainer.callbacks.logging_interval=step",
    "--trainer.logger=CSVLogger",
]


@pytest.mark.exhaustive
def test_short_names_are_lightnings_classes(tmp_path):
    """Of callbacks and loggers, with their arguments; the training is the one of its Trainer."""
    weights = {}
    for name, kind in (("home", pl.Trainer), ("ours", lightning_cli_trainer())):
        folder = tmp_path / name
        words = ["fit", "--trainer.max_epochs=2", "--trainer.log_every_n_steps=1", *SHORT]
        cli = run(kind, folder, *words, f"--trainer.logger.save_dir={folder}", "--model.lr=0.2")
        weights[name] = cli.model.layer.weight.tolist()
        assert isinstance(cli.trainer, trainer_hooks.Trainer) == (name == "ours")
        with (folder / "lightning_logs/version_0/metrics.csv").open() as file:
            rates = [row["lr-SGD"] for row in csv.DictReader(file) if row.get("lr-SGD")]
        assert rates == ["0.2"] * 4
        text = (folder / "lightning_logs/version_0/config.yaml").read_text()
        assert "pytorch_lightning.callbacks.LearningRateMonitor" in text
    assert weights["home"] == weights["ours"]


def test_a_config_that_it_wrote_and_a_checkpoint_are_read(tmp_path):
    """A second command line goes on from the first's, and another validates."""
    kind = lightning_cli_trainer()
    words = ["--trainer.max_epochs=1", *SHORT, f"--trainer.logger.save_dir={tmp_path}"]
    run(kind, tmp_path, "fit", *words)
    config = tmp_path / "lightning_logs/version_0/config.yaml"
    (path,) = (tmp_path / "lightning_logs/version_0/checkpoints").glob("*.ckpt")
    cli = run(kind, tmp_path, "fit", f"--config={config}", "--trainer.max_epochs=3",
              f"--ckpt_path={path}", save_config_kwargs={"overwrite": True})  # fmt: skip
    assert (cli.trainer.current_epoch, cli.trainer.global_step) == (3, 6)
    cli = run(kind, tmp_path, "validate", f"--ckpt_path={path}", "--trainer.logger=false")
    assert cli.trainer.callback_metrics["loss"] >= 0


def test_defaults_and_programs_of_ones_own(tmp_path):
    """`trainer_defaults` are taken, and `run=False` leaves the Trainer to the program."""
    cli = LightningCLI(
        Net, args=[*QUIET, SHORT[0]], trainer_class=lightning_cli_trainer("pytorch_lightning"),
        run=False, trainer_defaults={"max_epochs": 1, "default_root_dir": str(tmp_path)},
    )  # fmt: skip
    cli.trainer.fit(cli.model)
    assert cli.trainer.global_step == 2
    assert any("LearningRateMonitor" in repr(each) for each in cli.trainer.callbacks)


def test_a_program_with_both_packages_names_one(monkeypatch):
    """And one without Lightning is told so."""
    monkeypatch.setitem(sys.modules, "lightning.pytorch.cli", object())
    with pytest.raises(UsageError, match="both are imported"):
        lightning_cli_trainer()


def test_the_default_logger_is_that_of_the_trainer(tmp_path):
    """A hosted module does not change it: a Trainer logs to one place, whatever it trains."""
    trainer = trainer_hooks.Trainer(
        max_epochs=1, accelerator="cpu", enable_progress_bar=False, default_root_dir=tmp_path
    )
    logger = trainer.logger
    trainer.fit(Net())
    assert trainer.logger is logger
    assert type(logger) is trainer_hooks.loggers.CSVLogger
