"""Train on a table, with torchmetrics.

A net with two layers tells benign from malignant tumours by thirty measurements of each. A metric
object of torchmetrics is logged like a number: the trainer updates it, computes it over the whole
epoch, reduces it over all processes and resets it. An area under a curve cannot be averaged from
those of batches, so it has to be done like this.

Early stopping ends the training, and the best weights are tested. Metric objects and the patience
that is left are in the checkpoint, so a run that is resumed stops in the same epoch.
"""

import argparse

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

from trainer_hooks import DataModule, Module, Trainer, seed_everything
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint


class Tumours(DataModule):
    def setup(self, stage):
        table = load_breast_cancer()
        rows = torch.tensor(table.data, dtype=torch.float32)
        rows = (rows - rows.mean(dim=0)) / rows.std(dim=0)
        data = TensorDataset(rows, torch.tensor(table.target))
        split = torch.Generator().manual_seed(3)
        self.train, self.val, self.test = random_split(data, [369, 100, 100], generator=split)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=16, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=50)

    def test_dataloader(self):
        return DataLoader(self.test, batch_size=50)


class Classifier(Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(30, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 1), nn.Flatten(0)
        )
        metrics = MetricCollection({"acc": BinaryAccuracy(), "auroc": BinaryAUROC()})
        self.val_metrics = metrics.clone(prefix="val_")
        self.test_metrics = metrics.clone(prefix="test_")

    def training_step(self, batch, batch_idx):
        rows, targets = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(rows), targets.float())
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        rows, targets = batch
        self.val_metrics.update(self.net(rows), targets)
        self.log_dict(self.val_metrics, prog_bar=True)

    def test_step(self, batch, batch_idx):
        rows, targets = batch
        self.test_metrics.update(self.net(rows), targets)
        self.log_dict(self.test_metrics)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--folder", default="runs/tabular")
    args = parser.parse_args()

    seed_everything(1)
    data = Tumours()
    best = ModelCheckpoint(monitor="val_auroc", mode="max")
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        callbacks=[
            EarlyStopping("val_auroc", mode="max", patience=4),
            best,
            ModelCheckpoint(every_n_train_steps=10),
        ],
        log_every_n_steps=10,
    )
    trainer.fit(Classifier(), datamodule=data, ckpt_path="auto")
    trainer.test(datamodule=data, ckpt_path=best.best_model_path)


if __name__ == "__main__":
    main()
