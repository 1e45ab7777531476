"""A small run to save and load."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Module, Trainer


@pytest.fixture(autouse=True)
def one_thread():
    """Leave the other cores free."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(Module):
    """One layer."""

    def __init__(self, width: int = 2, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


@pytest.fixture
def net_type():
    return Net


@pytest.fixture
def fitted(tmp_path):
    """Return a function that fits a module for an epoch and returns its trainer."""

    def fit(module=None, callbacks=(), datamodule=None, **options) -> Trainer:
        data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
        trainer = Trainer(
            callbacks=callbacks,
            default_root_dir=tmp_path,
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            plugins=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            **options,
        )
        module = Net() if module is None else module
        if datamodule is None:
            trainer.fit(module, data)
        else:
            trainer.fit(module, datamodule=datamodule)
        return trainer

    return fit


@pytest.fixture
def examples():
    """The folder of stored checkpoints."""
    return Path(__file__).with_name("examples")


@pytest.fixture
def example_run(examples):
    """The module with the run that the stored checkpoints of older formats come from."""
    spec = importlib.util.spec_from_file_location("example_run", examples / "example_run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
