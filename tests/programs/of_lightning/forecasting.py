"""A forecasting library's manner: many hyperparameters, metrics and networks among them."""

import copy
import inspect
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor
from lightning.pytorch.utilities.parsing import get_init_args
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset
from torchmetrics import Metric

KILLED = "it collects the outputs of an epoch in a list, which is in no checkpoint"


class QuantileLoss(Metric):
    full_state_update = False

    def __init__(self, quantiles=(0.1, 0.5, 0.9)):
        super().__init__()
        self.quantiles = list(quantiles)
        self.add_state("losses", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("lengths", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, y_pred, target):
        q = torch.tensor(self.quantiles)
        errors = target.unsqueeze(-1) - y_pred
        self.losses = self.losses + torch.max((q - 1) * errors, q * errors).sum()
        self.lengths = self.lengths + target.numel()

    def compute(self):
        return self.losses / self.lengths


class TimeSeries(Dataset):
    def __init__(self, count, encoder=8, decoder=2):
        self.series = torch.sin(torch.arange(count + encoder + decoder) / 3.0)
        self.count, self.encoder, self.decoder = count, encoder, decoder

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        past = self.series[i : i + self.encoder]
        future = self.series[i + self.encoder : i + self.encoder + self.decoder]
        return {"encoder_cont": past, "decoder_target": future}, (future, None)

    def to_dataloader(self, train, batch_size):
        return DataLoader(self, batch_size=batch_size, shuffle=train, collate_fn=self.collate)

    @staticmethod
    def collate(items):
        x = {name: torch.stack([item[0][name] for item in items]) for name in items[0][0]}
        return x, (torch.stack([item[1][0] for item in items]), None)

    def get_parameters(self):
        return {"encoder": self.encoder, "decoder": self.decoder}


class BaseModel(pl.LightningModule):
    def __init__(self, dataset_parameters: dict[str, Any] | None = None, log_interval=-1,
                 log_val_interval=None, learning_rate=1e-3, loss: Metric | None = None,
                 logging_metrics: nn.ModuleList | None = None, reduce_on_plateau_patience=1000,
                 reduce_on_plateau_reduction=2.0, weight_decay=0.0, optimizer="adam",
                 **kwargs):  # fmt: skip
        super().__init__()
        init_args = get_init_args(inspect.currentframe())
        left_out = ("self", "loss", "logging_metrics", "dataset_parameters")
        self.save_hyperparameters({
            name: value for name, value in init_args.items()
            if name not in self.hparams and name not in left_out
        })  # fmt: skip
        if not hasattr(self, "loss"):
            self.loss = QuantileLoss() if loss is None else loss
        if not hasattr(self, "logging_metrics"):
            self.logging_metrics = nn.ModuleList(logging_metrics or [])
        self.dataset_parameters = dataset_parameters
        self.training_step_outputs, self.validation_step_outputs = [], []

    @property
    def log_interval(self):
        return self.hparams.log_interval

    @property
    def current_stage(self) -> str:
        return {"train": "train", "validate": "val", "test": "test", "sanity_check": "val"}[
            self.trainer.state.stage.value
        ]

    def training_step(self, batch, batch_idx):
        log, _ = self.step(*batch, batch_idx)
        self.training_step_outputs.append(log)
        return log

    def validation_step(self, batch, batch_idx):
        log, _ = self.step(*batch, batch_idx)
        self.validation_step_outputs.append(log)
        return log

    def on_train_epoch_end(self):
        self.on_epoch_end_outputs(self.training_step_outputs)

    def on_validation_epoch_end(self):
        self.on_epoch_end_outputs(self.validation_step_outputs)

    def on_epoch_end_outputs(self, outputs):
        if self.log_interval > 0:
            self.log(f"{self.current_stage}_outputs", float(len(outputs)))
        outputs.clear()

    def step(self, x, y, batch_idx):
        out = self(x)
        loss = self.loss(out["prediction"], y[0])
        self.log(f"{self.current_stage}_loss", loss, on_step=self.training, on_epoch=True,
                 prog_bar=True, batch_size=len(x["decoder_target"]))  # fmt: skip
        return {"loss": loss, "n_samples": len(x["decoder_target"])}, out

    def configure_optimizers(self):
        lrs = self.hparams.learning_rate
        optimizer = torch.optim.Adam(
            self.parameters(), lr=lrs, weight_decay=self.hparams.weight_decay
        )
        scheduler_config = {
            "scheduler": ReduceLROnPlateau(
                optimizer, mode="min", factor=1.0 / self.hparams.reduce_on_plateau_reduction,
                patience=self.hparams.reduce_on_plateau_patience,
            ),
            "monitor": "val_loss", "interval": "epoch", "frequency": 1, "strict": False,
        }  # fmt: skip
        return {"optimizer": optimizer, "lr_scheduler": scheduler_config}

    @classmethod
    def from_dataset(cls, dataset, **kwargs):
        kwargs["dataset_parameters"] = dataset.get_parameters()
        net = cls(**kwargs)
        if dataset.count:
            assert net.dataset_parameters["encoder"] == dataset.encoder
        return net

    def on_save_checkpoint(self, checkpoint):
        checkpoint["dataset_parameters"] = getattr(self, "dataset_parameters", None)
        checkpoint["loss"] = copy.deepcopy(self.loss.quantiles)

    def on_load_checkpoint(self, checkpoint):
        self.dataset_parameters = checkpoint.get("dataset_parameters", None)

    @property
    def target_names(self) -> list[str]:
        return ["value"]


class NBeats(BaseModel):
    def __init__(self, hidden_size: int = 8, dropout: float = 0.1, learning_rate: float = 1e-2,
                 log_interval: int = -1, weight_decay: float = 1e-3,
                 loss=None, logging_metrics: nn.ModuleList | None = None, **kwargs):  # fmt: skip
        loss = loss or QuantileLoss()
        self.save_hyperparameters(ignore=["loss", "logging_metrics"])
        super().__init__(loss=loss, logging_metrics=logging_metrics, **kwargs)
        self.net = nn.Sequential(
            nn.Linear(8, self.hparams.hidden_size), nn.ReLU(), nn.Dropout(self.hparams.dropout),
            nn.Linear(self.hparams.hidden_size, 2 * len(self.loss.quantiles)),
        )  # fmt: skip

    def forward(self, x):
        return {"prediction": self.net(x["encoder_cont"]).view(-1, 2, len(self.loss.quantiles))}


def main():
    pl.seed_everything(42)
    train, valid = TimeSeries(40), TimeSeries(16)
    model = NBeats.from_dataset(
        train, learning_rate=2e-2, log_interval=5, reduce_on_plateau_patience=0,
        loss=QuantileLoss((0.25, 0.5, 0.75)),
    )  # fmt: skip
    stop = EarlyStopping(monitor="val_loss", min_delta=1e-4, patience=10, verbose=False, mode="min")
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", enable_model_summary=True, gradient_clip_val=0.1,
        limit_train_batches=4, callbacks=[LearningRateMonitor(), stop],
        logger=pl.loggers.CSVLogger("logs", name="nbeats"),
    )  # fmt: skip
    trainer.fit(model, train_dataloaders=train.to_dataloader(True, 8),
                val_dataloaders=valid.to_dataloader(False, 8))  # fmt: skip
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
    return {"hparams": saved["hyper_parameters"], "parameters": saved["dataset_parameters"],
            "targets": model.target_names}  # fmt: skip
