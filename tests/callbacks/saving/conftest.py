"""A module and a short training, for the tests of savers."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Module, Trainer


class Net(Module):
    """A line; four batches an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        self.log("loss", 1.5)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


@pytest.fixture
def fit(tmp_path):
    """Return a function that trains with callbacks and returns the trainer."""

    def fit(*callbacks, ckpt_path=None, **options) -> Trainer:
        trainer = Trainer(
            callbacks=callbacks,
            default_root_dir=tmp_path,
            accelerator="cpu",
            logger=False,
            plugins=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"max_epochs": 2, **options},
        )
        trainer.fit(Net(), DataLoader(torch.ones(8, 2), batch_size=2), ckpt_path=ckpt_path)
        return trainer

    return fit
