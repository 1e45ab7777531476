"""Write the stored Lightning checkpoints: `python make_lightning.py`, with lightning 2.x.

Lightning's own callbacks and loops write them, so that the tests need no lightning.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).parent


class Net(LightningModule):
    """One layer, Adam, and a scheduler that counts steps."""

    def __init__(self, width: int = 3, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Linear(width, 1))

    def loss(self, batch):
        return self.layers(batch[0]).sub(1).square().mean()

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.rate, total_steps=15)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Counter(Callback):
    """Counts batches, as a user's own callback would."""

    count = 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}


class Gone(Counter):
    """A callback that the resumed run does not have."""


def main() -> None:
    """Train for three epochs of five batches, and keep checkpoints of two moments and the end."""
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(20.0).reshape(10, 2) / 20)
    with tempfile.TemporaryDirectory() as root:
        savers = {
            "lightning-epoch-end.ckpt": ModelCheckpoint(
                root, "epoch-{epoch}", monitor="val_loss", save_top_k=-1
            ),
            "lightning-inside.ckpt": ModelCheckpoint(
                root, "inside-{step}", every_n_train_steps=7, save_top_k=-1
            ),
        }
        trainer = Trainer(
            max_epochs=3,
            accelerator="cpu",
            logger=False,
            default_root_dir=root,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[EarlyStopping("val_loss"), Counter(), Gone(), *savers.values()],
        )
        trainer.fit(Net(), DataLoader(data, batch_size=2), DataLoader(data, batch_size=5))
        trainer.save_checkpoint(HERE / "lightning-end.ckpt")
        for name, found in zip(savers, ("epoch-epoch=1.ckpt", "inside-step=7.ckpt"), strict=True):
            (HERE / name).write_bytes((Path(root) / found).read_bytes())


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    main()
