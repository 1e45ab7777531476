"""Stochastic weight averaging, accumulation that is scheduled, rates that are monitored."""

import lightning as L
import torch
from tiny_data import digits
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
    Timer,
)
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

KILLED_HOSTED = "Lightning's SWA schedules again as the next epoch begins, at home, too"
DIFFERENCES = {
    "hosted:runs.0.losses": "The epoch in which `StochasticWeightAveraging` measures the inputs",
    "hosted:runs.0.hooks": "The epoch in which `StochasticWeightAveraging` measures the inputs",
    "ported:result.rates.*": "`StochasticWeightAveraging` of a module with BatchNorm",
    "ported:runs.0.losses": "`StochasticWeightAveraging` of a module with BatchNorm",
    "ported:runs.0.rates": "`StochasticWeightAveraging` of a module with BatchNorm",
    "ported:runs.0.metrics": "`StochasticWeightAveraging` of a module with BatchNorm",
    "ported:runs.0.hooks": "`StochasticWeightAveraging` of a module with BatchNorm",
    "ported:runs.0.validations": "`StochasticWeightAveraging` of a module with BatchNorm",
    "ported:runs.0.weights.*": "The last digit of means, of logged values and of weights",
}


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10)
        )

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5),
        }


def main():
    L.seed_everything(0, workers=True)
    callbacks = [
        StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=2, annealing_epochs=2),
        GradientAccumulationScheduler({1: 2, 3: 1}),
        LearningRateMonitor(logging_interval="step", log_momentum=True),
        EarlyStopping("val_loss", patience=4),
        ModelCheckpoint(monitor="val_loss", filename="{epoch}-{val_loss:.2f}", save_last="link"),
        Timer(duration={"hours": 1}),
    ]
    trainer = L.Trainer(
        max_epochs=5, accelerator="cpu", callbacks=callbacks, logger=CSVLogger("logs", "swa"),
        log_every_n_steps=1,
    )  # fmt: skip
    model = Net()
    trainer.fit(model, DataLoader(digits(64), 16, shuffle=True), DataLoader(digits(32), 16))
    rates = callbacks[2].lrs
    return {"rates": rates, "best": callbacks[4].best_model_score}
