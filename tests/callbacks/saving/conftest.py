"""A module and a short training, for the tests of savers."""

from __future__ import annotations

import pytest
import torch
from small_modules import LinearWithAdam
from torch.utils.data import DataLoader

from trainer_hooks import Trainer


class LogsConstantLoss(LinearWithAdam):
    def training_step(self, batch, batch_idx):
        self.log("loss", 1.5)
        return super().training_step(batch, batch_idx)


@pytest.fixture
def fit_inputs():
    """The module's class, the samples and the epochs of `fit`; a file may override them."""
    return LogsConstantLoss, torch.ones(8, 2), 2


@pytest.fixture
def fit(tmp_path, fit_inputs):
    """Return a function that trains with callbacks and returns the trainer."""
    make_module, samples, max_epochs = fit_inputs

    def fit(*callbacks, ckpt_path=None, **options) -> Trainer:
        trainer = Trainer(
            callbacks=callbacks,
            default_root_dir=tmp_path,
            accelerator="cpu",
            logger=False,
            plugins=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"max_epochs": max_epochs, **options},
        )
        trainer.fit(make_module(), DataLoader(samples, batch_size=2), ckpt_path=ckpt_path)
        return trainer

    return fit
