"""A library's base module: it overrides `log`, assigns its step, has names that are common words."""

import lightning.pytorch as pl
import torch
from tiny_data import digits
from torch.utils.data import DataLoader

DIFFERENCES: dict[str, str] = {}

DIFFERENCES = {
    "ported:port": "open: the port reports hooks of version 1, which Lightning does not call either"
}


class BaseTask(pl.LightningModule):
    prefix = "task"
    num_samples = 4

    def __init__(self, lr=0.1):
        self.save_hyperparameters()
        super().__init__()
        self.net = torch.nn.Linear(64, 10)
        self.seen = []
        self.training_step = self.supervised_step

    def log(self, name, value, **kwargs):
        super().log(f"{self.prefix}/{name}", value, **kwargs)

    def supervised_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])
        self.log("loss", loss, on_step=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])
        self.log("val", loss, prog_bar=True)

    def on_epoch_start(self, tag):
        self.seen.append(tag)

    def on_train_epoch_start(self):
        self.on_epoch_start(f"epoch {self.current_epoch}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(digits(32), batch_size=8)

    def val_dataloader(self):
        return DataLoader(digits(16), batch_size=8)


def main():
    pl.seed_everything(0)
    task = BaseTask(lr=0.05)
    trainer = pl.Trainer(max_epochs=2, logger=False, accelerator="cpu", enable_checkpointing=False)
    trainer.fit(task, Data())
    return {"seen": task.seen, "hparams": dict(task.hparams), "samples": task.num_samples}
