"""What the tests of loggers train, and how they read back what was written."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from new_processes import forget_trainings
from torch.utils.data import DataLoader

from trainer_hooks import Band, Callback, Module, Trainer, seed_everything


class LogsWithDropout(Module):
    """A small module with dropout that logs at steps, at epochs and in validations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1)
        )
        self.example_input_array = torch.zeros(1, 2)
        self.save_hyperparameters({"lr": 0.1, "layers": {"width": 4}})

    def forward(self, batch):
        return self.layers(batch)

    def training_step(self, batch, batch_idx):
        loss = self(batch).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class SaveEach(Callback):
    """Save a checkpoint at each slot."""

    band = Band.SAVE

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: list[Path] = []

    def save(self, trainer, name):
        self.paths.append(self.folder / f"{name}.ckpt")
        trainer.save_checkpoint(self.paths[-1])

    def on_batch_checkpoint(self, trainer, module):
        self.save(trainer, f"batch-{trainer.progress.batches_completed:02}")

    def on_epoch_checkpoint(self, trainer, module):
        self.save(trainer, f"epoch-{trainer.current_epoch}")


@pytest.fixture
def train(tmp_path):
    """A function that trains for two epochs of six batches with the given loggers."""

    def run(*loggers, callbacks=(), module=None, trainer=None, ckpt_path=None, seed=3, **options):
        forget_trainings()
        seed_everything(seed, verbose=False)
        defaults = {
            "max_epochs": 2,
            "accelerator": "cpu",
            "log_every_n_steps": 2,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "num_sanity_val_steps": 0,
            "default_root_dir": tmp_path,
        }
        if trainer is None:
            listed = list(loggers)
            trainer = Trainer(logger=listed, callbacks=list(callbacks), **{**defaults, **options})
        data = torch.arange(48, dtype=torch.float32).reshape(24, 2).sin()
        loader = DataLoader(data, batch_size=4, shuffle=True)
        val = DataLoader(data[:8], batch_size=4)
        trainer.fit(module or LogsWithDropout(), loader, val, ckpt_path=ckpt_path)
        return trainer

    return run


@pytest.fixture
def save_each(tmp_path):
    """A callback that saves at each slot, into a folder of its own."""
    return SaveEach(tmp_path / "cuts")


@pytest.fixture
def rows():
    """A function that reads a metrics file; empty cells are left out."""

    def read(folder: str | Path) -> list[dict[str, str]]:
        with Path(folder, "metrics.csv").open(newline="") as file:
            return [{k: v for k, v in row.items() if v} for row in csv.DictReader(file)]

    return read


@pytest.fixture
def scalars():
    """A function that reads a folder's scalars with TensorBoard's own reader."""

    def read(folder: str | Path) -> dict[str, list[tuple[int, float]]]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        return {
            # by step: files of one second are read in the order of their names, not of their making
            tag: sorted((event.step, event.value) for event in found.Scalars(tag))
            for tag in found.Tags()["scalars"]
        }

    return read
