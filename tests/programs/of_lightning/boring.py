"""Lightning's own BoringModel and BoringDataModule, from the package, as its bug reports use them."""

import os

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import (
    BoringDataModule,
    BoringModel,
    ManualOptimBoringModel,
    RandomDataset,
)
from torch.utils.data import DataLoader

KILLED = "its run is too short to be cut"
DIFFERENCES = {
    "runs.3.hooks": "`on_before_zero_grad` in manual optimization",
}


class BugReport(BoringModel):
    def training_step(self, batch, batch_idx):
        loss = self(batch).sum()
        self.log("train_loss", loss)
        return {"loss": loss}

    def validation_step(self, batch, batch_idx):
        self.log("valid_loss", self(batch).sum())

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self(batch).sum())

    def configure_optimizers(self):
        return torch.optim.SGD(self.layer.parameters(), lr=0.1)


def main():
    options = {
        "default_root_dir": os.getcwd(), "limit_train_batches": 1, "limit_val_batches": 1,
        "limit_test_batches": 1, "num_sanity_val_steps": 0, "max_epochs": 1,
        "enable_model_summary": False, "logger": False, "accelerator": "cpu",
    }  # fmt: skip
    model = BugReport()
    trainer = Trainer(**options)
    trainer.fit(model, DataLoader(RandomDataset(32, 64), batch_size=2),
                DataLoader(RandomDataset(32, 64), batch_size=2))  # fmt: skip
    tested = trainer.test(model, dataloaders=DataLoader(RandomDataset(32, 64), batch_size=2))
    Trainer(**options).fit(BoringModel(), datamodule=BoringDataModule())
    Trainer(**options).fit(BoringModel())
    manual = Trainer(**{**options, "limit_train_batches": 3})
    manual.fit(ManualOptimBoringModel())
    return {"tested": tested, "steps": manual.global_step}
