"""A collection of VAEs: one experiment module around a model, steered by a dict from a config."""

import os
from pathlib import Path

import pytorch_lightning as pl
import torch
from tiny_data import digits
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn
from torch.utils.data import DataLoader


class VanillaVAE(nn.Module):
    def __init__(self, latent_dim):
        super().__init__()
        self.latent_dim = latent_dim
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU())
        self.fc_mu = nn.Linear(32, latent_dim)
        self.fc_var = nn.Linear(32, latent_dim)
        self.decoder = nn.Sequential(
            nn.Linear(latent_dim, 32), nn.LeakyReLU(), nn.Linear(32, 64), nn.Sigmoid()
        )

    def forward(self, input, **kwargs):
        hidden = self.encoder(input)
        mu, log_var = self.fc_mu(hidden), self.fc_var(hidden)
        z = torch.randn_like(mu) * torch.exp(0.5 * log_var) + mu
        return [self.decoder(z).view_as(input), input, mu, log_var]

    def loss_function(self, recons, input, mu, log_var, **kwargs):
        recons_loss = nn.functional.mse_loss(recons, input)
        kld_loss = torch.mean(-0.5 * torch.sum(1 + log_var - mu**2 - log_var.exp(), dim=1), dim=0)
        loss = recons_loss + kwargs["M_N"] * kld_loss
        return {
            "loss": loss, "Reconstruction_Loss": recons_loss.detach(), "KLD": -kld_loss.detach()
        }  # fmt: skip

    def sample(self, num_samples, current_device, **kwargs):
        return self.decoder(torch.randn(num_samples, self.latent_dim).to(current_device))


class VAEXperiment(pl.LightningModule):
    def __init__(self, vae_model, params):
        super().__init__()
        self.model = vae_model
        self.params = params
        self.curr_device = None
        self.hold_graph = self.params.get("retain_first_backpass", False)

    def forward(self, input, **kwargs):
        return self.model(input, **kwargs)

    def training_step(self, batch, batch_idx):
        real_img, labels = batch
        self.curr_device = real_img.device
        results = self.forward(real_img, labels=labels)
        train_loss = self.model.loss_function(
            *results, M_N=self.params["kld_weight"], batch_idx=batch_idx
        )
        self.log_dict({key: val.item() for key, val in train_loss.items()}, sync_dist=True)
        return train_loss["loss"]

    def validation_step(self, batch, batch_idx):
        real_img, labels = batch
        self.curr_device = real_img.device
        results = self.forward(real_img, labels=labels)
        val_loss = self.model.loss_function(*results, M_N=1.0, batch_idx=batch_idx)
        self.log_dict({f"val_{key}": val.item() for key, val in val_loss.items()}, sync_dist=True)

    def on_validation_end(self):
        self.sample_images()

    def sample_images(self):
        test_input, test_label = next(iter(self.trainer.datamodule.test_dataloader()))
        test_input = test_input.to(self.curr_device)
        recons = self.model(test_input, labels=test_label)[0]
        name = f"recons_{self.logger.name}_Epoch_{self.current_epoch}.txt"
        folder = os.path.join(self.logger.log_dir, "Reconstructions")
        Path(folder, name).write_text(str(recons.shape))
        self.model.sample(4, self.curr_device, labels=test_label)

    def configure_optimizers(self):
        optims, scheds = [], []
        optims.append(
            torch.optim.Adam(
                self.model.parameters(), lr=self.params["LR"],
                weight_decay=self.params["weight_decay"],
            )
        )  # fmt: skip
        scheduler = torch.optim.lr_scheduler.ExponentialLR(
            optims[0], gamma=self.params["scheduler_gamma"]
        )
        scheds.append(scheduler)
        return optims, scheds


class VAEDataset(pl.LightningDataModule):
    def __init__(self, train_batch_size=8, val_batch_size=8, **kwargs):
        super().__init__()
        self.train_batch_size = train_batch_size
        self.val_batch_size = val_batch_size

    def setup(self, stage=None):
        self.train_dataset, self.val_dataset = digits(48), digits(16)

    def train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=self.train_batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_dataset, batch_size=self.val_batch_size, shuffle=False)

    def test_dataloader(self):
        return DataLoader(self.val_dataset, batch_size=16, shuffle=True)


def main():
    config = {
        "model_params": {"latent_dim": 4},
        "data_params": {"train_batch_size": 8, "val_batch_size": 8},
        "exp_params": {
            "LR": 0.005, "weight_decay": 0.0, "scheduler_gamma": 0.95, "kld_weight": 0.00025,
            "manual_seed": 1265,
        },
        "trainer_params": {"devices": 1, "accelerator": "cpu", "max_epochs": 2},
    }  # fmt: skip
    tb_logger = TensorBoardLogger(save_dir="logs/", name="VanillaVAE")
    pl.seed_everything(config["exp_params"]["manual_seed"], True)
    experiment = VAEXperiment(VanillaVAE(**config["model_params"]), config["exp_params"])
    data = VAEDataset(**config["data_params"])
    data.setup()
    runner = Trainer(
        logger=tb_logger,
        callbacks=[
            LearningRateMonitor(),
            ModelCheckpoint(
                save_top_k=2, dirpath=os.path.join(tb_logger.log_dir, "checkpoints"),
                monitor="val_loss", save_last=True,
            ),
        ],
        **config["trainer_params"],
    )  # fmt: skip
    Path(f"{tb_logger.log_dir}/Samples").mkdir(exist_ok=True, parents=True)
    Path(f"{tb_logger.log_dir}/Reconstructions").mkdir(exist_ok=True, parents=True)
    with isolate_rng():
        torch.rand(1)
    runner.fit(experiment, datamodule=data)
    return {"is_ddp": isinstance(runner.strategy, DDPStrategy)}
