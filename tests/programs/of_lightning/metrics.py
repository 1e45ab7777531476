"""Metrics of torchmetrics: collections that are cloned with a prefix, and a confusion matrix."""

import lightning as L
import torch
import torchmetrics
from tiny_data import digits
from torch.utils.data import DataLoader


class Classifier(L.LightningModule):
    def __init__(self, num_classes=10):
        super().__init__()
        self.layer = torch.nn.Linear(64, num_classes)
        metrics = torchmetrics.MetricCollection({
            "acc": torchmetrics.Accuracy(task="multiclass", num_classes=num_classes),
            "f1": torchmetrics.F1Score("multiclass", num_classes=num_classes, average="macro"),
        })  # fmt: skip
        self.train_metrics = metrics.clone(prefix="train/")
        self.val_metrics = metrics.clone(prefix="val/")
        self.loss_metrics = torch.nn.ModuleDict(
            {"sum": torchmetrics.SumMetric(), "mean": torchmetrics.MeanMetric()}
        )
        self.confusion = torchmetrics.ConfusionMatrix("multiclass", num_classes=num_classes)
        self.matrices = []

    def forward(self, x):
        return self.layer(x.flatten(1))

    def training_step(self, batch, batch_idx):
        logits = self(batch[0])
        loss = torch.nn.functional.cross_entropy(logits, batch[1])
        output = self.train_metrics(logits, batch[1])
        self.log_dict(output, on_step=True, on_epoch=False)
        for name, metric in self.loss_metrics.items():
            metric(loss)
            self.log(f"loss/{name}", metric, metric_attribute=f"loss_metrics.{name}")
        return loss

    def on_train_epoch_end(self):
        values = {f"{name}_epoch": v for name, v in self.train_metrics.compute().items()}
        self.log_dict(values)
        self.train_metrics.reset()

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        self.val_metrics.update(logits, batch[1])
        self.confusion.update(logits, batch[1])
        self.log_dict(self.val_metrics, on_step=False, on_epoch=True)

    def on_validation_epoch_end(self):
        self.matrices.append(self.confusion.compute().diagonal().sum().item())
        self.confusion.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.02)


def main():
    L.seed_everything(6)
    model = Classifier()
    trainer = L.Trainer(max_epochs=3, logger=L.pytorch.loggers.CSVLogger("out", "metrics"),
                        accelerator="cpu", log_every_n_steps=1, val_check_interval=0.5)  # fmt: skip
    trainer.fit(model, DataLoader(digits(64), 16, shuffle=True), DataLoader(digits(32), 16))
    return {"matrices": model.matrices, "logged": dict(trainer.logged_metrics)}
