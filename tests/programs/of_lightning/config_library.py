"""A speech toolkit's manner: the config is one OmegaConf hyperparameter and makes the loaders."""

import pytorch_lightning as pl
import torch
from tiny_data import digits
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning import LightningModule
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

DIFFERENCES: dict[str, str] = {}
HOSTED = "its constructor takes Lightning's Trainer alone"


class ModelPT(LightningModule):
    def __init__(self, cfg: DictConfig, trainer: pl.Trainer | None = None):
        if trainer is not None and not isinstance(trainer, pl.Trainer):
            raise ValueError(f"trainer must be a Trainer, not {type(trainer)}")
        super().__init__()
        with open_dict(cfg):
            cfg.setdefault("target", "ModelPT")
        self._cfg = cfg
        self.save_hyperparameters("cfg")
        self._train_dl = self._validation_dl = None
        self._optimizer = self._scheduler = None
        self.set_trainer(trainer)
        if self._cfg.get("train_ds"):
            self.setup_training_data(self._cfg.train_ds)
        if self._cfg.get("validation_ds"):
            self.setup_validation_data(self._cfg.validation_ds)

    def set_trainer(self, trainer):
        self._trainer = trainer
        if trainer is not None:
            self.world_size = trainer.num_nodes * trainer.num_devices

    def setup_training_data(self, config):
        self._train_dl = DataLoader(digits(config.count), config.batch_size, shuffle=config.shuffle)

    def setup_validation_data(self, config):
        self._validation_dl = DataLoader(digits(config.count), config.batch_size)

    def train_dataloader(self):
        if self._train_dl is not None:
            return self._train_dl

    def val_dataloader(self):
        if self._validation_dl is None:
            return []
        return self._validation_dl

    def setup_optimization(self, optim_config):
        optim_config = OmegaConf.to_container(optim_config, resolve=True)
        sched = optim_config.pop("sched")
        kind = getattr(torch.optim, optim_config.pop("name"))
        self._optimizer = kind(self.parameters(), **optim_config)
        max_steps = sched["max_steps"]
        if max_steps is None:
            max_steps = self._trainer.max_epochs * len(self._train_dl)
        self._scheduler = {
            "scheduler": torch.optim.lr_scheduler.LambdaLR(
                self._optimizer, lambda step: min(1.0, (step + 1) / max_steps)
            ),
            "interval": "step", "frequency": 1, "monitor": "loss", "reduce_on_plateau": False,
        }  # fmt: skip
        return self._optimizer, self._scheduler

    def configure_optimizers(self):
        self.setup_optimization(self.cfg.optim)
        return [self._optimizer], [self._scheduler]

    @property
    def cfg(self):
        return self._cfg

    @property
    def num_weights(self):
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


class EncDecModel(ModelPT):
    def __init__(self, cfg, trainer=None):
        super().__init__(cfg=cfg, trainer=trainer)
        self.encoder = torch.nn.Linear(64, cfg.encoder.width)
        self.decoder = torch.nn.Linear(cfg.encoder.width, 10)

    def training_step(self, batch, batch_nb):
        loss = torch.nn.functional.cross_entropy(
            self.decoder(self.encoder(batch[0].flatten(1)).relu()), batch[1]
        )
        tensorboard_logs = {
            "train_loss": loss, "learning_rate": self._optimizer.param_groups[0]["lr"],
            "global_step": torch.tensor(self.trainer.global_step, dtype=torch.float32),
        }  # fmt: skip
        return {"loss": loss, "log": tensorboard_logs}

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        out = self.decoder(self.encoder(batch[0].flatten(1)).relu())
        loss = torch.nn.functional.cross_entropy(out, batch[1])
        self.log("val_loss", loss, sync_dist=True)
        return loss


def main():
    cfg = OmegaConf.create({
        "encoder": {"width": 12},
        "train_ds": {"count": 48, "batch_size": 8, "shuffle": True},
        "validation_ds": {"count": 16, "batch_size": 8},
        "optim": {"name": "AdamW", "lr": 0.01, "sched": {"max_steps": None}},
    })  # fmt: skip
    pl.seed_everything(1)
    saver = ModelCheckpoint("out", filename="asr--{val_loss:.2f}-{epoch}", monitor="val_loss",
                            save_last=True)  # fmt: skip
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, callbacks=[saver],
                         val_check_interval=3, max_steps=-1)  # fmt: skip
    model = EncDecModel(cfg=cfg, trainer=trainer)
    trainer.fit(model)
    restored = EncDecModel.load_from_checkpoint(saver.best_model_path, weights_only=False)
    return {"weights": restored.num_weights, "width": restored.cfg.encoder.width,
            "world": model.world_size}  # fmt: skip
