"""A module that notes what is done with it, and can run out of memory."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Module


class Probed(Module):
    """A regression with dropout and batch norm, which makes its own loaders."""

    def __init__(self, lr=0.01, batch_size=2, samples=64, limit=None):
        super().__init__()
        self.save_hyperparameters("lr", "batch_size")
        self.lr = lr
        self.batch_size = batch_size
        self.samples = samples
        self.limit = limit
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.2)
        )
        self.head = torch.nn.Linear(4, 1)
        self.generator = torch.Generator().manual_seed(5)
        self.calls = 0
        self.notes = {"losses": []}
        self.total = torch.zeros(())

    def training_step(self, batch, batch_idx):
        (x,) = batch
        RUN.append(("train", len(x)))
        self._allocate(x)
        self.calls += 1
        self.total += 1
        loss = (self.head(self.net(x)) - x.sum(1, keepdim=True)).square().mean()
        self.notes["losses"].append(loss.detach())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        RUN.append(("validate", len(batch[0])))
        self._allocate(batch[0])

    def test_step(self, batch, batch_idx):
        RUN.append(("test", len(batch[0])))
        self._allocate(batch[0])

    def predict_step(self, batch, batch_idx):
        RUN.append(("predict", len(batch[0])))
        self._allocate(batch[0])
        return batch[0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.5)

    def train_dataloader(self):
        x = torch.linspace(-1, 1, 2 * self.samples).sin().reshape(-1, 2)
        return DataLoader(
            TensorDataset(x), self.batch_size, shuffle=True, generator=self.generator,
            drop_last=True,
        )  # fmt: skip

    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(self.samples, 2)), self.batch_size)

    test_dataloader = predict_dataloader = val_dataloader

    def _allocate(self, x):
        if self.limit is not None and len(x) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")


RUN: list[tuple[str, int]] = []
"""What was run: the stage and the size of each batch, kept where no snapshot reaches."""


@pytest.fixture
def run():
    """What the modules ran, batch by batch."""
    RUN.clear()
    return RUN


@pytest.fixture
def probed():
    """Make such a module, always the same one."""

    def make(**options):
        torch.manual_seed(11)
        return Probed(**options)

    return make
