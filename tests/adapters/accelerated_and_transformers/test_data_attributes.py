"""What callbacks of pytorch-accelerated read of the data is the same as in its own Trainer."""

from __future__ import annotations

import pytest
import pytorch_accelerated as pa
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils.collate import default_collate

from trainer_hooks import Module, Trainer

pytestmark = pytest.mark.slow  # the import of the framework alone is

DATA = TensorDataset(torch.ones(8, 2), torch.ones(8, 1))


class Reads(pa.callbacks.TrainerCallback):
    """Notes the data sets and the collating function after each epoch."""

    def __init__(self):
        self.found = []

    def on_train_epoch_end(self, trainer, **kwargs):
        self.found.append((trainer.train_dataset, trainer.eval_dataset, trainer.collate_fn))


class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("eval_loss_epoch", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_data_sets_and_collate_function():
    """They are those of the loaders; where there is no data set, there is None."""
    loader, reads = DataLoader(DATA, batch_size=4), Reads()
    options = {"accelerator": "cpu", "max_epochs": 1, "logger": False, "plugins": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(callbacks=[reads], enable_checkpointing=False, **options, **quiet)
    trainer.fit(Line(), loader, loader)
    trainer.fit(Line(), [next(iter(loader))])
    assert reads.found[0] == (DATA, DATA, default_collate)
    assert reads.found[1][0] is None
    assert reads.found[1][2] is None
