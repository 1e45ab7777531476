"""The run that the stored checkpoint comes from.

`python example_run.py FILE` writes a checkpoint of it as this version of trainer_hooks writes them,
cut inside the second epoch. Do so before the format changes, and keep the file beside this one.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module, Trainer

CUT_AFTER = 7
"""Batches over all epochs; an epoch has five, and a window two."""


class Net(Module):
    """One layer with dropout, and a scheduler."""

    def __init__(self, width: int = 3, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Dropout(0.2), nn.Linear(width, 1))

    def training_step(self, batch, batch_idx):
        loss = self.layers(batch[0]).sub(1).square().mean()
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Counter(Callback):
    """Counts batches. Its state has the key by which files know encoded values."""

    def __init__(self) -> None:
        self.count = 0
        self.seen = {"__trainer_hooks__": "deque", "items": [1], "maxlen": None}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1

    def state_dict(self):
        return {"count": self.count, "seen": self.seen}

    def load_state_dict(self, state_dict):
        self.count, self.seen = state_dict["count"], state_dict["seen"]


class Cutter(Callback):
    """Saves a checkpoint at `CUT_AFTER`."""

    def __init__(self, path) -> None:
        self.path = path

    def on_batch_checkpoint(self, trainer, module):
        if trainer.progress.batches_completed == CUT_AFTER:
            trainer.save_checkpoint(self.path)


def train(callbacks, folder, ckpt_path=None, max_epochs=3) -> Trainer:
    """Train the module of the examples, from the start or from a checkpoint; return the trainer."""
    torch.manual_seed(0)
    module = Net()
    data = TensorDataset(torch.arange(20.0).reshape(10, 2) / 20)
    trainer = Trainer(
        callbacks=callbacks,
        default_root_dir=folder,
        max_epochs=max_epochs,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        plugins=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(module, DataLoader(data, batch_size=2, shuffle=True), ckpt_path=ckpt_path)
    return trainer


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        train([Counter(), Cutter(sys.argv[1])], root)
