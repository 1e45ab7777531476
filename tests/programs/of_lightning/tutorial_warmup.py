"""A tutorial's manner: the warmup steps in `optimizer_step`, callbacks make samples."""

import numpy as np
import pytorch_lightning as pl
import torch
from tiny_data import digits
from pytorch_lightning.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from torch import nn, optim
from torch.utils.data import DataLoader

DIFFERENCES: dict[str, str] = {}

KILLED = "it steps a schedule that is in no checkpoint"


class CosineWarmupScheduler(optim.lr_scheduler._LRScheduler):
    def __init__(self, optimizer, warmup, max_iters):
        self.warmup = warmup
        self.max_num_iters = max_iters
        super().__init__(optimizer)

    def get_lr(self):
        factor = 0.5 * (1 + np.cos(np.pi * self.last_epoch / self.max_num_iters))
        if self.last_epoch <= self.warmup:
            factor *= self.last_epoch * 1.0 / self.warmup
        return [base_lr * factor for base_lr in self.base_lrs]


class GenerateCallback(Callback):
    def __init__(self, input_imgs, every_n_epochs=1):
        super().__init__()
        self.input_imgs = input_imgs
        self.every_n_epochs = every_n_epochs
        self.reconstructed = []

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch % self.every_n_epochs == 0:
            input_imgs = self.input_imgs.to(pl_module.device)
            with torch.no_grad():
                pl_module.eval()
                reconst_imgs = pl_module(input_imgs)
                pl_module.train()
            self.reconstructed.append(reconst_imgs.mean().item())
            trainer.logger.experiment.add_scalar(
                "Reconstructions", reconst_imgs.mean(), global_step=trainer.global_step
            )


class Autoencoder(pl.LightningModule):
    def __init__(self, base_channel_size, latent_dim, encoder_class=nn.Linear, num_input_channels=1,
                 lr=1e-2, warmup=3, max_iters=20):  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.encoder = encoder_class(64, latent_dim)
        self.decoder = nn.Sequential(nn.Dropout(0.1), nn.Linear(latent_dim, 64), nn.Tanh())
        self.example_input_array = torch.zeros(2, num_input_channels, 8, 8)

    def forward(self, x):
        return self.decoder(self.encoder(x.flatten(1))).view_as(x)

    def _get_reconstruction_loss(self, batch):
        x, _ = batch
        return (
            nn.functional.mse_loss(x, self.forward(x), reduction="none").sum(dim=[1, 2, 3]).mean()
        )

    def configure_optimizers(self):
        optimizer = optim.Adam(self.parameters(), lr=self.hparams.lr)
        self.lr_scheduler = CosineWarmupScheduler(
            optimizer, warmup=self.hparams.warmup, max_iters=self.hparams.max_iters
        )
        return optimizer

    def optimizer_step(self, *args, **kwargs):
        super().optimizer_step(*args, **kwargs)
        self.lr_scheduler.step()

    def training_step(self, batch, batch_idx):
        loss = self._get_reconstruction_loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._get_reconstruction_loss(batch))

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self._get_reconstruction_loss(batch))


def main():
    pl.seed_everything(42)
    images = torch.stack([digits(2)[i][0] for i in range(2)])
    generate = GenerateCallback(images, every_n_epochs=1)
    trainer = pl.Trainer(
        default_root_dir="saved_models", accelerator="auto", devices=1, max_epochs=3,
        logger=pl.loggers.TensorBoardLogger("saved_models"),
        callbacks=[ModelCheckpoint(save_weights_only=True), generate, LearningRateMonitor("epoch")],
    )  # fmt: skip
    trainer.logger._log_graph = True
    trainer.logger._default_hp_metric = None
    model = Autoencoder(base_channel_size=4, latent_dim=8)
    trainer.fit(model, DataLoader(digits(48), 8, shuffle=True), DataLoader(digits(16), 8))
    model = Autoencoder.load_from_checkpoint(
        trainer.checkpoint_callback.best_model_path, weights_only=False
    )
    val_result = trainer.test(model, dataloaders=DataLoader(digits(16), 8), verbose=False)
    return {"val": val_result[0]["test_loss"], "reconstructed": generate.reconstructed}
