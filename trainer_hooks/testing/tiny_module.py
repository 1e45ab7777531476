"""TinyModule: a real module that trains in milliseconds and gives the same result each time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.module.module import Module

_SIZE = 2


class TinyModule(Module):
    """A module that classifies points in the plane, with SGD and a scheduler.

    It has its own loaders: three shuffled batches of two samples to train on, and two batches for
    each other stage. It logs `train_loss`, `val_loss`, `val_acc` and `test_loss`. It has a
    `forward` and a `loss` instead of steps, so that the hooks around those are called. Two new
    modules are equal, and nothing in them draws from the global random generators.

    Args:
        lr: the learning rate.

    Example::

        Trainer(max_epochs=1, callbacks=[MyCallback()]).fit(TinyModule())
    """

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters({"lr": lr})
        self.lr = lr
        # made on the meta device, since torch's initialisation would draw global random numbers
        self.layer: nn.Linear = nn.Linear(2, 2, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            for parameter in self.parameters():
                values = torch.arange(parameter.numel(), dtype=torch.float32)
                parameter.copy_(values.reshape(parameter.shape).cos())

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the two scores of each sample, of shape (samples, 2)."""
        scores: Tensor = self.layer(batch[0])
        return scores

    def loss(self, outputs: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the cross entropy of the scores."""
        return nn.functional.cross_entropy(outputs, batch[1])

    def on_validation_batch_end(
        self, outputs: Tensor, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log the accuracy."""
        self.log("val_acc", (outputs.argmax(dim=1) == batch[1]).float().mean(), batch_size=_SIZE)

    def configure_optimizers(self) -> dict[str, Any]:
        """Return SGD with momentum, its learning rate halved after each epoch."""
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Return three shuffled batches."""
        return _loader(3, shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Return two batches."""
        return _loader(2)

    def test_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Return two batches."""
        return _loader(2)

    def predict_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Return two batches."""
        return _loader(2)


def _loader(batches: int, *, shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    """Make a loader of so many batches of points and their classes."""
    inputs = torch.arange(batches * _SIZE * 2, dtype=torch.float32).reshape(-1, 2).sin()
    samples = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    # even an unshuffled DataLoader draws a base seed, from the global generator if it has no other
    generator = torch.Generator().manual_seed(0)
    return DataLoader(samples, batch_size=_SIZE, shuffle=shuffle, generator=generator)
