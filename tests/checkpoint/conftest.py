"""A small run to save and load."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from small_modules import LinearWithHyperparameters
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Trainer


@pytest.fixture
def net_type():
    return LinearWithHyperparameters


@pytest.fixture
def fitted(tmp_path):
    """Return a function that fits a module for an epoch and returns its trainer."""

    def fit(module=None, callbacks=(), datamodule=None, **options) -> Trainer:
        data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
        trainer = Trainer(
            callbacks=callbacks, default_root_dir=tmp_path, max_epochs=1, **QUIET_OPTIONS,
            **options,
        )  # fmt: skip
        module = LinearWithHyperparameters() if module is None else module
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
    """The module with the run that the stored checkpoint comes from."""
    spec = importlib.util.spec_from_file_location("example_run", examples / "example_run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
