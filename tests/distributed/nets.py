"""A small net, its data and a quiet trainer, for programs that start their processes themselves."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module, Trainer


class Net(Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(5, 1)

    def training_step(self, batch, batch_idx):
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        error = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("val_loss", error, sync_dist=True)

    def predict_step(self, batch, batch_idx):
        return self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


class At(Callback):
    """Does something in one rank, once its second batch is done."""

    def __init__(self, rank, act) -> None:
        self.rank, self.act = rank, act

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_rank == self.rank and batch_idx == 1:
            self.act(trainer)


def loader(*, shuffle: bool = True) -> DataLoader:
    """Return sixteen batches of four."""
    numbers = torch.Generator().manual_seed(3)
    parts = [torch.randn(64, n, generator=numbers) for n in (5, 1)]
    return DataLoader(TensorDataset(*parts), 4, shuffle=shuffle)


def trainer(*callbacks, **options) -> Trainer:
    """Return a trainer of two processes on the CPU that writes nothing."""
    quiet = {
        "accelerator": "cpu", "devices": 2, "max_epochs": 1, "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False, "num_sanity_val_steps": 0,
        "enable_model_summary": False, "callbacks": list(callbacks),
    }  # fmt: skip
    return Trainer(**{**quiet, **options})


def weights(module) -> list[float]:
    """Return all weights."""
    return [v for p in module.state_dict().values() for v in p.flatten().tolist()]
