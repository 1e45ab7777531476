"""Modules and trainers that average weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer_hooks import Callback
from trainer_hooks.hooks.band import Band
from trainer_hooks.testing import TinyModule


class NormedModule(TinyModule):
    """A tiny module with BatchNorm, dropout, and logs of its training loss."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__(lr)
        self.norm = nn.BatchNorm1d(2)
        self.drop = nn.Dropout(0.25)

    def forward(self, batch):
        return self.layer(self.drop(self.norm(batch[0])))

    def training_step(self, batch, batch_idx):
        loss = self.loss(self(batch), batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        outputs = self(batch)
        self.log("val_loss", self.loss(outputs, batch))
        return outputs


@pytest.fixture
def normed():
    """The class of a tiny module with BatchNorm."""
    return NormedModule


class Weights(Callback):
    """Notes a copy of the layer's weights at moments of a fit, after all others have acted."""

    band = Band.SAVE

    def __init__(self) -> None:
        self.steps: list[torch.Tensor] = []
        self.epochs: list[torch.Tensor] = []
        self.starts: list[torch.Tensor] = []
        self.validated: list[torch.Tensor] = []

    def on_train_epoch_start(self, trainer, module) -> None:
        self.starts.append(module.layer.weight.detach().clone())

    def on_after_optimizer_step(self, trainer, module, optimizer) -> None:
        self.steps.append(module.layer.weight.detach().clone())

    def on_validation_batch_start(self, trainer, module, batch, batch_idx) -> None:
        self.validated.append(module.layer.weight.detach().clone())

    def on_train_epoch_end(self, trainer, module) -> None:
        self.epochs.append(module.layer.weight.detach().clone())


@pytest.fixture
def weights():
    """Note the layer's weights in a run."""
    return Weights()


@pytest.fixture
def mean():
    """Return a function that takes the mean of a list of tensors."""
    return lambda tensors: torch.stack(tensors).mean(dim=0)
