"""A module with a backbone to train later."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer_hooks.testing import TinyModule


class Split(TinyModule):
    """A module with a backbone, whose optimizer is made of what is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        with torch.no_grad():
            self.backbone[0].weight.copy_(torch.eye(2))
            self.backbone[0].bias.zero_()

    def forward(self, batch):
        linear, norm = self.backbone
        return self.layer(linear(norm(batch[0])).tanh())

    def configure_optimizers(self):
        trained = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.SGD(trained, lr=0.5, momentum=0.9)


@pytest.fixture
def split():
    """The class of a module with a backbone."""
    return Split
