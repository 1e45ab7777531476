"""Lightning: barebones, with everything switched off by hand, and with the usual extras."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
from _workload import BATCH_SIZE, LOG_EVERY, METRICS, TimedBatches, make_model, make_optimizer
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    TQDMProgressBar,
)
from lightning.pytorch.loggers import CSVLogger
from torch.nn import functional as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

__all__ = ["bare", "barebones", "usual", "usual_rare_bar"]

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class _Plain(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self)


class _Logging(_Plain):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        first, second, third = METRICS
        self.log(first, loss, prog_bar=True, on_step=True, on_epoch=True, batch_size=BATCH_SIZE)
        self.log(second, loss, on_step=True, on_epoch=True, batch_size=BATCH_SIZE)
        self.log(third, loss, on_step=True, on_epoch=True, batch_size=BATCH_SIZE)
        return loss


def _fit(
    module: _Plain, batches: TimedBatches, epochs: int, folder: Path, **options: Any
) -> nn.Module:
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=epochs,
        default_root_dir=folder,
        **options,
    )
    trainer.fit(module, batches)
    return module.net


def barebones(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train with the flag that is meant for measuring overhead."""
    return _fit(_Plain(), batches, epochs, folder, barebones=True)


def bare(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train with the default loop, and no logger, bar, checkpoint or summary."""
    return _fit(
        _Plain(),
        batches,
        epochs,
        folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def usual(batches: TimedBatches, epochs: int, folder: Path, refresh_rate: int = 1) -> nn.Module:
    """Train with three logged metrics, bar, CSV, rate monitor, early stopping and checkpoints."""
    callbacks = [
        TQDMProgressBar(refresh_rate=refresh_rate),
        LearningRateMonitor(logging_interval="step"),
        EarlyStopping("loss_epoch", patience=1000, check_on_train_epoch_end=True),
        ModelCheckpoint(folder / "checkpoints", save_on_train_epoch_end=True),
    ]
    return _fit(
        _Logging(),
        batches,
        epochs,
        folder,
        callbacks=callbacks,
        logger=CSVLogger(folder),
        log_every_n_steps=LOG_EVERY,
        enable_model_summary=False,
    )


def usual_rare_bar(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Do the same with a bar that is drawn about as often as tqdm alone would draw it."""
    return usual(batches, epochs, folder, refresh_rate=200)
