"""Small real models, on the handwritten digits that scikit-learn ships."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Module, Trainer
from trainer_hooks.loggers.base import Logger

SOURCE = Path(__file__).parents[1] / "src"
if str(SOURCE) not in sys.path:  # the tests run from a checkout, installed or not
    sys.path.append(str(SOURCE))


def digits(count: int, first: int = 0) -> TensorDataset:
    """Return images of shape (1, 8, 8), from 0 to 1, and their classes."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images).float().unsqueeze(1) / 16
    return TensorDataset(
        images[first : first + count], torch.tensor(data.target)[first : first + count]
    )


def loader(count: int, size: int = 64, first: int = 0, shuffle: bool = True) -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    return DataLoader(digits(count, first), batch_size=size, shuffle=shuffle, generator=generator)


class Classifier(Module):
    """Tell digits, by a small MLP."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10)
        )

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_acc", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class VAE(Module):
    """Draw digits, from two numbers each."""

    latent_dim = 2

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU())
        self.mean, self.spread = nn.Linear(width, 2), nn.Linear(width, 2)
        self.decoder = nn.Sequential(
            nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64)
        )

    def representations(self, images):
        return self.mean(self.encoder(images))

    def decode(self, latents):
        return self.decoder(latents).sigmoid().reshape(-1, 1, 8, 8)

    def forward(self, images):
        hidden = self.encoder(images)
        mean, spread = self.mean(hidden), self.spread(hidden)
        latents = mean + (spread / 2).exp() * torch.randn_like(mean)
        return self.decode(latents), mean, spread

    def training_step(self, batch, batch_idx):
        images, mean, spread = self(batch[0])
        drawn = nn.functional.binary_cross_entropy(images, batch[0], reduction="sum")
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum()
        loss = (drawn + 0.3 * divergence) / len(batch[0])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.mse_loss(self(batch[0])[0], batch[0]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class WithLoaders:
    """The same, with loaders of a few batches, as the test kit wants it."""

    def train_dataloader(self):
        return loader(12, size=4)

    def val_dataloader(self):
        return loader(8, size=4, first=100, shuffle=False)

    def test_dataloader(self):
        return self.val_dataloader()

    def predict_dataloader(self):
        return self.val_dataloader()

    def test_step(self, batch, batch_idx):
        self.log("test_size", float(len(batch[0])))

    def predict_step(self, batch, batch_idx):
        return self(batch[0])


class KitClassifier(WithLoaders, Classifier):
    """A classifier for the test kit."""


class KitVAE(WithLoaders, VAE):
    """A variational autoencoder for the test kit."""


class Album(Logger):
    """A logger that keeps the images that it is given: `(key, step, images, captions)`."""

    def __init__(self) -> None:
        self.pages: list[tuple] = []
        self.metrics: list[tuple] = []

    def log_metrics(self, metrics, step=None):
        self.metrics.append((step, dict(metrics)))

    def log_image(self, key, images, step=None, *, captions=None, channels_last=False):
        for image in images:
            assert 0 <= float(image.min()) <= float(image.max()) <= 1
        self.pages.append((key, step, images, captions))


@pytest.fixture
def fit(tmp_path):
    """Fit a module on digits, with callbacks; return the trainer."""

    def run(module, *callbacks, loaders=None, ckpt_path=None, **options):
        quiet = {
            "accelerator": "cpu",
            "callbacks": callbacks,
            "default_root_dir": tmp_path,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "plugins": False,
        }
        trainer = Trainer(**{**quiet, **options})
        trainer.fit(module, *(loaders or (loader(1024),)), ckpt_path=ckpt_path)
        return trainer

    return run


@pytest.fixture
def models():
    """The models and loaders above, by name."""
    from types import SimpleNamespace

    return SimpleNamespace(
        Album=Album,
        Classifier=Classifier,
        KitClassifier=KitClassifier,
        KitVAE=KitVAE,
        VAE=VAE,
        digits=digits,
        loader=loader,
    )
