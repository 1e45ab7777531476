"""The model and the data of the demo: a small convolutional net on scikit-learn's digits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    import os

CLASSES = 10
SIZES = {"train": 1297, "val": 200, "test": 300}
"""Images of each part; 1,797 together."""


class DigitsData(DataModule):
    """The 1,797 handwritten digits, 8 x 8 pixels each, always split in the same way.

    Batches are pairs of images, float of shape (batch, 1, 8, 8) from 0 to 1, and labels, int64 of
    shape (batch,).

    Args:
        folder: where `digits.pt` is kept, so that a later process need not import scikit-learn.
        batch_size: images of a training batch.
    """

    def __init__(self, folder: str | os.PathLike[str], batch_size: int = 32) -> None:
        self.file = Path(folder) / "digits.pt"
        self.batch_size = batch_size
        self.parts: dict[str, TensorDataset] = {}

    def prepare_data(self) -> None:
        """Copy the images out of scikit-learn, unless that was done before.

        Raises:
            ModuleNotFoundError: scikit-learn is not installed.
        """
        if self.file.exists():
            return
        # here, since the processes that resume find the file, and need no scikit-learn
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        # pixels are numbers from 0 to 16
        images = torch.from_numpy(pixels).float().div(16).reshape(-1, 1, 8, 8)
        # shuffled by a generator of its own: the split never depends on the run's seed
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        torch.save((images[order], torch.from_numpy(labels).long()[order]), self.file)

    def setup(self, stage: str) -> None:
        """Split the images into training, validation and test."""
        images, labels = torch.load(self.file, weights_only=True)
        sizes = list(SIZES.values())
        pieces = zip(SIZES, images.split(sizes), labels.split(sizes), strict=True)
        self.parts = {name: TensorDataset(x, y) for name, x, y in pieces}

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training images, in a new order each epoch."""
        return DataLoader(self.parts["train"], self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the validation images."""
        return DataLoader(self.parts["val"], 100)

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the test images."""
        return DataLoader(self.parts["test"], 100)


class DigitsNet(Module):
    """Two convolutions and two dense layers with dropout, trained with Adam on one learning cycle.

    Args:
        max_lr: the learning rate at the height of the cycle.
        dropout: the share of features that is dropped.
    """

    def __init__(self, max_lr: float = 5e-3, dropout: float = 0.25) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            # 32 channels of 4 x 4 pixels, which the pooling leaves of 8 x 8
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(64, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, shape (batch, 10), of images of shape (batch, 1, 8, 8)."""
        logits: Tensor = self.head(self.features(images))
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        loss = functional.cross_entropy(self(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log loss and accuracy on the validation images."""
        self._evaluate(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Log loss and accuracy on the test images."""
        self._evaluate(batch, "test")

    def configure_optimizers(self) -> Any:
        """Return Adam, and a cycle as long as the fit."""
        # OneCycleLR sets the rate before the first step, so that this one never counts
        optimizer = torch.optim.Adam(self.parameters(), self.hparams["max_lr"] / 10)
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=self.hparams["max_lr"],
            total_steps=self.trainer.estimated_stepping_batches,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": cycle, "interval": "step"},
        }

    def _evaluate(self, batch: Any, stage: str) -> None:
        images, labels = batch
        logits = self(images)
        self.log(f"{stage}_loss", functional.cross_entropy(logits, labels), sync_dist=True)
        hits = (logits.argmax(1) == labels).float().mean()
        self.log(f"{stage}_acc", hits, prog_bar=True, sync_dist=True)
