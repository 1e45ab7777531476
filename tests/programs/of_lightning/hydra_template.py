"""A template's program: everything is made by hydra, the optimizer is a partial."""

from pathlib import Path
from typing import Any

import hydra
import lightning as L
import torch
from tiny_data import digits
from lightning import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader, random_split
from torchmetrics import MaxMetric, MeanMetric
from torchmetrics.classification.accuracy import Accuracy

DIFFERENCES: dict[str, str] = {}


class SimpleDenseNet(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(),
            torch.nn.Linear(hidden, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.model(x.view(x.size(0), -1))


class DigitsModule(LightningModule):
    def __init__(self, net, optimizer, scheduler, compile) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.net = net
        self.criterion = torch.nn.CrossEntropyLoss()
        self.train_acc = Accuracy(task="multiclass", num_classes=10)
        self.val_acc = Accuracy(task="multiclass", num_classes=10)
        self.test_acc = Accuracy(task="multiclass", num_classes=10)
        self.train_loss = MeanMetric()
        self.val_loss = MeanMetric()
        self.val_acc_best = MaxMetric()

    def forward(self, x):
        return self.net(x)

    def on_train_start(self) -> None:
        self.val_loss.reset()
        self.val_acc.reset()
        self.val_acc_best.reset()

    def model_step(self, batch):
        x, y = batch
        logits = self.forward(x)
        return self.criterion(logits, y), torch.argmax(logits, dim=1), y

    def training_step(self, batch, batch_idx: int):
        loss, preds, targets = self.model_step(batch)
        self.train_loss(loss)
        self.train_acc(preds, targets)
        self.log("train/loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        self.log("train/acc", self.train_acc, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def on_train_epoch_end(self) -> None:
        pass

    def validation_step(self, batch, batch_idx: int) -> None:
        loss, preds, targets = self.model_step(batch)
        self.val_loss(loss)
        self.val_acc(preds, targets)
        self.log("val/loss", self.val_loss, on_step=False, on_epoch=True, prog_bar=True)
        self.log("val/acc", self.val_acc, on_step=False, on_epoch=True, prog_bar=True)

    def on_validation_epoch_end(self) -> None:
        self.val_acc_best(self.val_acc.compute())
        self.log("val/acc_best", self.val_acc_best.compute(), sync_dist=True, prog_bar=True)

    def test_step(self, batch, batch_idx: int) -> None:
        _, preds, targets = self.model_step(batch)
        self.test_acc(preds, targets)
        self.log("test/acc", self.test_acc, on_step=False, on_epoch=True)

    def setup(self, stage: str) -> None:
        if self.hparams.compile and stage == "fit":
            self.net = torch.compile(self.net)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = self.hparams.optimizer(params=self.trainer.model.parameters())
        scheduler = self.hparams.scheduler(optimizer=optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler, "monitor": "val/loss", "interval": "epoch", "frequency": 1,
            },
        }  # fmt: skip


class DigitsDataModule(LightningDataModule):
    def __init__(self, batch_size: int = 64) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.data_train = self.data_val = self.data_test = None
        self.batch_size_per_device = batch_size

    def setup(self, stage: str | None = None) -> None:
        if self.trainer is not None:
            assert self.hparams.batch_size % self.trainer.world_size == 0
            self.batch_size_per_device = self.hparams.batch_size // self.trainer.world_size
        if not self.data_train:
            self.data_train, self.data_val, self.data_test = random_split(
                digits(), [48, 24, 24], generator=torch.Generator().manual_seed(42)
            )

    def train_dataloader(self):
        return DataLoader(self.data_train, self.batch_size_per_device, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.data_val, self.batch_size_per_device)

    def test_dataloader(self):
        return DataLoader(self.data_test, self.batch_size_per_device)

    def teardown(self, stage: str | None = None) -> None:
        pass

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state_dict: dict) -> None:
        pass


@rank_zero_only
def log_hyperparameters(objects: dict[str, Any]) -> None:
    cfg = OmegaConf.to_container(objects["cfg"])
    trainer, model = objects["trainer"], objects["model"]
    hparams = {"model": cfg["model"], "data": cfg["data"], "seed": cfg["seed"]}
    hparams["model/params/total"] = sum(p.numel() for p in model.parameters())
    for logger in trainer.loggers:
        logger.log_hyperparams(hparams)


def train(cfg: DictConfig) -> tuple[dict, dict]:
    L.seed_everything(cfg.seed, workers=True)
    datamodule: LightningDataModule = hydra.utils.instantiate(cfg.data)
    model: LightningModule = hydra.utils.instantiate(cfg.model)
    callbacks: list[Callback] = [hydra.utils.instantiate(one) for one in cfg.callbacks.values()]
    logger: list[Logger] = [hydra.utils.instantiate(one) for one in cfg.logger.values()]
    trainer: Trainer = hydra.utils.instantiate(cfg.trainer, callbacks=callbacks, logger=logger)
    log_hyperparameters({"cfg": cfg, "trainer": trainer, "model": model})
    trainer.fit(model=model, datamodule=datamodule, ckpt_path=None)
    train_metrics = trainer.callback_metrics
    trainer.test(model=model, datamodule=datamodule, ckpt_path="best", weights_only=False)
    return {**train_metrics, **trainer.callback_metrics}, {"trainer": trainer}


def hosted():
    return main(trainer="trainer_hooks.Trainer")


def main(**targets):
    cfg = OmegaConf.load(Path(__file__).with_suffix(".yaml"))
    for name, target in targets.items():
        cfg[name]._target_ = target
    metrics, objects = train(cfg)
    return {
        "metrics": metrics,
        "best": Path(objects["trainer"].checkpoint_callback.best_model_path).name,
    }
