"""A GAN with two optimizers in manual optimization, which toggles them."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from tiny_data import digits
from torch import nn
from torch.utils.data import DataLoader, random_split

DIFFERENCES = {
    "runs.0.hooks": "`on_before_zero_grad` in manual optimization",
    "ported:files.*/metrics.csv": "Files in the folder of a logger",
}


class Generator(nn.Module):
    def __init__(self, latent_dim):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(latent_dim, 32), nn.BatchNorm1d(32, 0.8), nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(32, 64), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z):
        return self.model(z).view(z.size(0), 1, 8, 8)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid()
        )

    def forward(self, img):
        return self.model(img)


class DigitsDataModule(pl.LightningDataModule):
    def __init__(self, batch_size=16, num_workers=0):
        super().__init__()
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.dims = (1, 8, 8)

    def prepare_data(self):
        digits(1)

    def setup(self, stage=None):
        if stage == "fit" or stage is None:
            self.digits_train, self.digits_val = random_split(digits(), [64, 32])

    def train_dataloader(self):
        return DataLoader(
            self.digits_train, self.batch_size, num_workers=self.num_workers, shuffle=True
        )

    def val_dataloader(self):
        return DataLoader(self.digits_val, batch_size=self.batch_size)


class GAN(pl.LightningModule):
    def __init__(self, latent_dim=8, lr=0.0002, b1=0.5, b2=0.999, **kwargs):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator = Generator(self.hparams.latent_dim)
        self.discriminator = Discriminator()
        self.validation_z = torch.randn(4, self.hparams.latent_dim)
        self.example_input_array = torch.zeros(2, self.hparams.latent_dim)
        self.samples = []

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, y_hat, y):
        return F.binary_cross_entropy(y_hat, y)

    def training_step(self, batch):
        imgs, _ = batch
        optimizer_g, optimizer_d = self.optimizers()
        z = torch.randn(imgs.shape[0], self.hparams.latent_dim)
        z = z.type_as(imgs)

        self.toggle_optimizer(optimizer_g)
        self.generated_imgs = self(z)
        valid = torch.ones(imgs.size(0), 1).type_as(imgs)
        g_loss = self.adversarial_loss(self.discriminator(self(z)), valid)
        self.log("g_loss", g_loss, prog_bar=True)
        self.manual_backward(g_loss)
        optimizer_g.step()
        optimizer_g.zero_grad()
        self.untoggle_optimizer(optimizer_g)

        self.toggle_optimizer(optimizer_d)
        real_loss = self.adversarial_loss(self.discriminator(imgs), valid)
        fake = torch.zeros(imgs.size(0), 1).type_as(imgs)
        fake_loss = self.adversarial_loss(self.discriminator(self(z).detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        self.log("d_loss", d_loss, prog_bar=True)
        self.manual_backward(d_loss)
        optimizer_d.step()
        optimizer_d.zero_grad()
        self.untoggle_optimizer(optimizer_d)

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        lr, b1, b2 = self.hparams.lr, self.hparams.b1, self.hparams.b2
        opt_g = torch.optim.Adam(self.generator.parameters(), lr=lr, betas=(b1, b2))
        opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=(b1, b2))
        return [opt_g, opt_d], []

    def on_validation_epoch_end(self):
        sample_imgs = self(self.validation_z.type_as(self.generator.model[0].weight))
        self.samples.append([self.current_epoch, sample_imgs.mean().item()])


def main():
    pl.seed_everything(1)
    dm = DigitsDataModule()
    model = GAN(*(8,), width=dm.dims[1])
    logger = pl.loggers.CSVLogger(".")
    trainer = pl.Trainer(accelerator="auto", devices=1, max_epochs=2, logger=logger)
    trainer.fit(model, dm)
    return {"samples": model.samples, "global_step": trainer.global_step}
