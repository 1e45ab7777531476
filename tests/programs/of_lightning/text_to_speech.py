"""Speech from text: losses logged by step and epoch, gradient norms, pictures drawn after a validation.

The schedule is made by a partial and told its epoch by hand, which is read from the checkpoint.
"""

import inspect
from abc import ABC
from functools import partial
from types import SimpleNamespace

import torch
from lightning import LightningDataModule, LightningModule, Trainer, seed_everything
from tiny_data import images_and_labels
from lightning.pytorch.callbacks import ModelCheckpoint, ModelSummary
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import grad_norm
from torch.utils.data import DataLoader, Dataset

DIFFERENCES = {
    "result.second.drawn": "Random numbers on a resume at the end of an epoch",
    "runs.1.losses": "Random numbers on a resume at the end of an epoch",
    "runs.1.metrics": "Random numbers on a resume at the end of an epoch",
    "runs.1.hooks": "Sanity check on a resume",
    "runs.1.validations": "Sanity check on a resume",
    "runs.1.weights.*": "Random numbers on a resume at the end of an epoch",
    "ported:files.logs/tensorboard/version_1/*": (
        "The folder of a logger without a `version` on a resume"
    ),
}


class Speech(Dataset):
    def __init__(self, part):
        images, labels = images_and_labels(40)
        self.mels, self.texts = images[part, 0], labels[part]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return {"x": self.texts[index].repeat(4), "y": self.mels[index], "spk": index % 2}


class BatchCollate:
    def __init__(self, n_spks):
        self.n_spks = n_spks

    def __call__(self, items):
        spks = torch.tensor([item["spk"] for item in items]) if self.n_spks > 1 else None
        return {"x": torch.stack([item["x"] for item in items]),
                "x_lengths": torch.tensor([4 for _ in items]),
                "y": torch.stack([item["y"] for item in items]), "spks": spks,
                "durations": None}  # fmt: skip


class TextMelDataModule(LightningDataModule):
    def __init__(self, name, batch_size, n_spks, data_statistics, seed):
        super().__init__()
        self.save_hyperparameters(logger=False)

    def setup(self, stage=None):
        self.trainset, self.validset = Speech(slice(0, 30)), Speech(slice(30, 40))

    def _loader(self, data, shuffle):
        return DataLoader(data, batch_size=self.hparams.batch_size, shuffle=shuffle,
                          collate_fn=BatchCollate(self.hparams.n_spks))  # fmt: skip

    def train_dataloader(self):
        return self._loader(self.trainset, True)

    def val_dataloader(self):
        return self._loader(self.validset, False)

    def teardown(self, stage=None):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass


class BaseLightningClass(LightningModule, ABC):
    def update_data_statistics(self, data_statistics):
        if data_statistics is None:
            data_statistics = {"mel_mean": 0.0, "mel_std": 1.0}
        self.register_buffer("mel_mean", torch.tensor(data_statistics["mel_mean"]))
        self.register_buffer("mel_std", torch.tensor(data_statistics["mel_std"]))

    def configure_optimizers(self):
        optimizer = self.hparams.optimizer(params=self.parameters())
        if self.hparams.scheduler not in (None, {}):
            current_epoch = -1
            made = self.hparams.scheduler.scheduler
            takes_epoch = "last_epoch" in inspect.signature(made).parameters
            if takes_epoch and hasattr(self, "ckpt_loaded_epoch"):
                current_epoch = self.ckpt_loaded_epoch - 1
            scheduler = made(optimizer=optimizer)
            scheduler.last_epoch = current_epoch
            return {"optimizer": optimizer,
                    "lr_scheduler": {"scheduler": scheduler, "name": "learning_rate",
                                     **self.hparams.scheduler.lightning_args}}  # fmt: skip
        return {"optimizer": optimizer}

    def on_load_checkpoint(self, checkpoint):
        self.ckpt_loaded_epoch = checkpoint["epoch"]

    def _log_losses(self, losses, stage):
        for name, value in losses.items():
            self.log(f"sub_loss/{stage}_{name}", value, on_step=True, on_epoch=True, logger=True,
                     sync_dist=True)  # fmt: skip
        total_loss = sum(losses.values())
        self.log(f"loss/{stage}", total_loss, on_step=True, on_epoch=True, logger=True,
                 prog_bar=True, sync_dist=True)  # fmt: skip
        return total_loss

    def training_step(self, batch, batch_idx):
        losses = self.get_losses(batch)
        self.log("step", float(self.global_step), on_step=True, prog_bar=True, logger=True,
                 sync_dist=True)  # fmt: skip
        return {"loss": self._log_losses(losses, "train"), "log": losses}

    def validation_step(self, batch, batch_idx):
        return self._log_losses(self.get_losses(batch), "val")

    def on_validation_end(self):
        if self.trainer.is_global_zero:
            one_batch = next(iter(self.trainer.val_dataloaders))
            if self.current_epoch == 0:
                self.logger.experiment.add_image("original/0", one_batch["y"][0].unsqueeze(-1),
                                                 self.current_epoch, dataformats="HWC")  # fmt: skip
            mel = self.synthesise(one_batch["x"][0].unsqueeze(0).to(self.device))
            self.drawn.append(float(mel.sum()))
            self.logger.experiment.add_image("generated/0", mel.reshape(8, 8, 1).clamp(0, 1),
                                             self.current_epoch, dataformats="HWC")  # fmt: skip

    def on_before_optimizer_step(self, optimizer):
        self.log_dict({f"grad_norm/{k}": v for k, v in grad_norm(self, norm_type=2).items()})


class MatchaTTS(BaseLightningClass):
    def __init__(self, n_vocab, width, data_statistics, optimizer=None, scheduler=None):
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.drawn = []
        self.encoder = torch.nn.Embedding(n_vocab, width)
        self.decoder = torch.nn.Linear(4 * width, 64)
        self.update_data_statistics(data_statistics)

    @torch.inference_mode()
    def synthesise(self, x):
        self.eval()
        return self.decoder(self.encoder(x).flatten(1)) * self.mel_std + self.mel_mean

    def get_losses(self, batch):
        y = (batch["y"].flatten(1) - self.mel_mean) / self.mel_std
        hidden = self.encoder(batch["x"]).flatten(1)
        prior = (self.decoder(hidden) - y).square().mean()
        return {"prior_loss": prior, "diff_loss": hidden.square().mean() * 0.01}


def start(epochs, ckpt_path=None):
    data = TextMelDataModule("digits", 10, 2, {"mel_mean": 0.3, "mel_std": 0.4}, 3)
    schedule = SimpleNamespace(
        scheduler=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.8),
        lightning_args={"interval": "epoch", "frequency": 1},
    )
    model = MatchaTTS(10, 6, data.hparams.data_statistics,
                      optimizer=partial(torch.optim.Adam, lr=0.02), scheduler=schedule)  # fmt: skip
    saver = ModelCheckpoint(
        dirpath="checkpoints", filename="checkpoint_{epoch:03d}", monitor="epoch", mode="max",
        save_last=True, save_top_k=2, auto_insert_metric_name=True, every_n_epochs=1,
    )  # fmt: skip
    trainer = Trainer(
        default_root_dir="logs", max_epochs=epochs, accelerator="cpu", devices=1, precision="32",
        check_val_every_n_epoch=1, deterministic=False, gradient_clip_val=5.0,
        callbacks=[saver, ModelSummary(max_depth=3)], enable_progress_bar=False,
        logger=[TensorBoardLogger("logs/tensorboard", name=None, default_hp_metric=False)],
    )  # fmt: skip
    trainer.logger.log_hyperparams(
        {"model/params/total": sum(p.numel() for p in model.parameters())}
    )
    trainer.fit(model=model, datamodule=data, ckpt_path=ckpt_path, weights_only=False)
    names = sorted(trainer.callback_metrics)
    return {"names": names, "drawn": model.drawn, "best": saver.best_model_path.rpartition("/")[2],
            "rate": trainer.optimizers[0].param_groups[0]["lr"],
            "last_epoch": trainer.lr_scheduler_configs[0].scheduler.last_epoch}  # fmt: skip


def main():
    seed_everything(1234, workers=False)
    first = start(3)
    return {"first": first, "second": start(5, "checkpoints/last.ckpt")}
