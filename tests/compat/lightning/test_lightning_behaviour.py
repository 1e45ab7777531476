"""Behaviour of Lightning that differs from trainer_hooks, and that code for it relies on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import trainer_hooks
import trainer_hooks.compat.lightning as pl
from trainer_hooks.compat.lightning import base_classes
from trainer_hooks.compat.lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from trainer_hooks.compat.lightning.utilities import rank_zero_experiment
from trainer_hooks.compat.lightning.utilities.exceptions import MisconfigurationException

QUIET = {
    "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0, "max_epochs": 1,
}  # fmt: skip
DATA = list(torch.ones(2, 3, 4))


class Line(pl.LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen: list[int] = []

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("has_tensorboard", "kind"), [(True, TensorBoardLogger), (False, CSVLogger)]
)
def test_the_default_logger_is_lightnings(tmp_path, monkeypatch, has_tensorboard, kind):
    """It is TensorBoard where that is installed, in lightning_logs, with the checkpoints there."""
    monkeypatch.setattr(base_classes, "find_spec", lambda name: has_tensorboard or None)
    trainer = pl.Trainer(**QUIET, default_root_dir=tmp_path)
    trainer.fit(Line(), DATA)
    assert type(trainer.logger) is kind
    assert Path(trainer.log_dir) == tmp_path / "lightning_logs/version_0"
    (path,) = tmp_path.rglob("*.ckpt")
    assert path.relative_to(trainer.log_dir) == Path("checkpoints/epoch=0-step=2.ckpt")


def test_a_required_loader_number_is_given_as_in_lightning_1():
    """Steps and hooks of modules and callbacks are given 0 where there is one loader."""
    seen = []

    class Old(Line):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            seen.append(("step", dataloader_idx))

        def on_validation_batch_start(self, batch, batch_idx, dataloader_idx):
            """Note it."""
            seen.append(("module", dataloader_idx))

    class Notes(pl.Callback):
        def on_validation_batch_end(
            self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx
        ):
            seen.append((type(pl_module).__name__, dataloader_idx))

    assert Old.on_validation_batch_start.__doc__ == "Note it."
    trainer = pl.Trainer(**QUIET, logger=False, enable_checkpointing=False, callbacks=[Notes()])
    trainer.fit(Old(), DATA, DATA[:1])
    assert seen == [("module", 0), ("step", 0), ("Old", 0)]
    seen.clear()
    trainer.validate(Old(), [torch.utils.data.DataLoader(DATA[:1]) for _ in range(2)])
    assert [number for _, number in seen] == [0, 0, 0, 1, 1, 1]


def test_errors_are_lightnings():
    """What is set up wrongly is a MisconfigurationException."""
    with pytest.raises(MisconfigurationException, match="gradient_clip_algorithm"):
        pl.Trainer(gradient_clip_algorithm="most")
    callbacks = [pl.callbacks.EarlyStopping("no_such_metric")]
    trainer = pl.Trainer(**QUIET, logger=False, enable_checkpointing=False, callbacks=callbacks)
    with pytest.raises(MisconfigurationException, match="no_such_metric"):
        trainer.fit(Line(), DATA)


def test_what_is_made_is_trainer_hooks_own():
    """There is no second trainer: everything is, or is made of, what trainer_hooks has."""
    assert issubclass(pl.Trainer, trainer_hooks.Trainer)
    assert issubclass(pl.LightningModule, trainer_hooks.Module)
    assert issubclass(pl.LightningDataModule, trainer_hooks.DataModule)
    assert issubclass(pl.Callback, trainer_hooks.Callback)
    assert pl.callbacks.ModelCheckpoint is trainer_hooks.callbacks.ModelCheckpoint


def test_a_logger_of_ones_own_has_its_experiment():
    """`rank_zero_experiment` makes it in the first process."""

    class Mine(Logger):
        @property
        @rank_zero_experiment
        def experiment(self):
            return ["made"]

        def log_metrics(self, metrics, step=None):
            self.experiment.append(metrics)

    assert Mine().experiment == ["made"]


def test_the_command_line_has_lightnings_name(tmp_path, monkeypatch):
    """`LightningCLI` makes Lightning's Trainer, and writes the config beside its logs."""
    from trainer_hooks.compat.lightning.cli import LightningCLI

    monkeypatch.chdir(tmp_path)

    class Numbers(pl.LightningDataModule):
        def train_dataloader(self):
            return DATA

    words = ["fit", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    cli = LightningCLI(Line, Numbers, args=[*words, "--trainer.enable_progress_bar=false"])
    assert type(cli.trainer) is pl.Trainer
    assert cli.trainer.global_step == 2
    assert (Path(cli.trainer.log_dir) / "config.yaml").exists()
    with pytest.raises(ImportError, match="instantiate_class is not in trainer_hooks: the command"):
        from trainer_hooks.compat.lightning.cli import instantiate_class  # noqa: F401
