"""Tests and predictions, of several loaders, that a `BasePredictionWriter` writes to files."""

from pathlib import Path

import lightning.pytorch as pl
import torch
from tiny_data import digits
from lightning.pytorch.callbacks import BasePredictionWriter
from torch.utils.data import DataLoader


class BatchWriter(BasePredictionWriter):
    def __init__(self, output_dir, write_interval):
        super().__init__(write_interval)
        self.output_dir = Path(output_dir)

    def write_on_batch_end(
        self, trainer, pl_module, prediction, batch_indices, batch, batch_idx, dataloader_idx
    ):
        folder = self.output_dir / str(dataloader_idx)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save([prediction, batch_indices], folder / f"{batch_idx}.pt")

    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        torch.save(predictions, self.output_dir / f"all_{trainer.global_rank}.pt")
        self.indices = batch_indices
        self.sizes = (
            [len(loader) for loader in predictions] if isinstance(predictions[0], list) else None
        )


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(digits(32), batch_size=8, shuffle=True)

    def test_dataloader(self):
        return {
            "first": DataLoader(digits(16), batch_size=8),
            "second": DataLoader(digits(8), batch_size=8),
        }

    def predict_dataloader(self):
        return [DataLoader(digits(16), batch_size=8), DataLoader(digits(12), batch_size=5)]


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("test_loss", loss)
        self.log("test_total", loss, add_dataloader_idx=False, on_epoch=True, reduce_fx="sum") if (
            dataloader_idx == 1
        ) else None

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self(batch[0]).argmax(1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    pl.seed_everything(5)
    writer = BatchWriter("predictions", write_interval="batch_and_epoch")
    trainer = pl.Trainer(max_epochs=1, callbacks=[writer], logger=False, accelerator="cpu",
                         enable_checkpointing=False, use_distributed_sampler=False)  # fmt: skip
    model, data = Model(), Data()
    trainer.fit(model, datamodule=data)
    tested = trainer.test(model, datamodule=data, verbose=False)
    returned = trainer.predict(model, datamodule=data, return_predictions=False)
    predicted = trainer.predict(model, dataloaders=DataLoader(digits(8), batch_size=4))
    return {"tested": tested, "returned": returned, "indices": writer.indices,
            "sizes": writer.sizes, "predicted": torch.cat(predicted)}  # fmt: skip
