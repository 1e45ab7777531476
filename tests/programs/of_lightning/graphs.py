"""Graph networks: a batch is an object with its own `to`, a slotted dataclass or a named tuple."""

from dataclasses import dataclass
from typing import NamedTuple

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

KILLED = "its first run is too short to be cut"
DIFFERENCES = {"result.moves": "The method `to` of a batch, in a run on the CPU"}


class Data:
    def __init__(self, x, y):
        self.x, self.y, self.moves = x, y, 0

    def to(self, device, non_blocking=False):
        moved = Data(self.x.to(device), self.y.to(device))
        moved.moves = self.moves + 1
        return moved

    @property
    def num_graphs(self):
        return len(self.x)


@dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    y: torch.Tensor


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class GNN(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
        self.kinds, self.moves = [], 0

    def training_step(self, data, batch_idx):
        self.kinds.append(type(data).__name__)
        self.moves += getattr(data, "moves", 0)
        loss = torch.nn.functional.mse_loss(self.net(data.x).squeeze(1), data.y)
        self.log("train_loss", loss, batch_size=len(data.x), on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=5e-4)


def loader(kind):
    def collate(rows):
        x = torch.stack(rows)
        return kind(x, x.sum(1))

    rows = torch.arange(32.0).reshape(8, 4) / 32
    return DataLoader(rows, batch_size=4, collate_fn=collate)


def main():
    pl.seed_everything(9)
    model = GNN()
    for kind in (Data, Pair, Slotted):
        trainer = pl.Trainer(max_epochs=1, logger=False, accelerator="cpu",
                             enable_checkpointing=False)  # fmt: skip
        trainer.fit(model, loader(kind))
    return {"kinds": model.kinds, "moves": model.moves}
