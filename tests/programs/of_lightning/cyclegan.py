"""Several optimizers in manual optimization, with their schedulers and a pool of images."""

import itertools
import random

import pytorch_lightning as pl
import torch
from tiny_data import digits
from torch import nn
from torch.utils.data import DataLoader

KILLED = "its pool of images is in no checkpoint"
DIFFERENCES = {"runs.0.hooks": "`on_before_zero_grad` in manual optimization"}


class ImagePool:
    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, images):
        answers = []
        for image in images:
            if len(self.images) < self.size:
                self.images.append(image)
                answers.append(image)
            elif random.uniform(0, 1) > 0.5:
                place = random.randint(0, self.size - 1)
                answers.append(self.images[place].clone())
                self.images[place] = image
            else:
                answers.append(image)
        return torch.stack(answers)


class CycleGAN(pl.LightningModule):
    def __init__(self, lr=0.002, n_epochs_decay=2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.g_ab, self.g_ba = nn.Linear(64, 64), nn.Linear(64, 64)
        self.d_a, self.d_b = nn.Linear(64, 1), nn.Linear(64, 1)
        self.pool = ImagePool(12)

    @staticmethod
    def set_requires_grad(nets, requires_grad=False):
        for net in nets:
            for param in net.parameters():
                param.requires_grad = requires_grad

    def training_step(self, batch, batch_idx):
        real_a = batch[0].flatten(1)
        real_b = 1 - real_a
        opt_g, opt_d = self.optimizers()
        mse = nn.functional.mse_loss

        self.set_requires_grad([self.d_a, self.d_b], False)
        fake_b, fake_a = self.g_ab(real_a), self.g_ba(real_b)
        adversarial = mse(self.d_b(fake_b), torch.ones(len(real_a), 1)) + mse(
            self.d_a(fake_a), torch.ones(len(real_a), 1)
        )
        cycle = (self.g_ba(fake_b) - real_a).abs().mean() + (
            self.g_ab(fake_a) - real_b
        ).abs().mean()
        g_loss = adversarial + 10 * cycle
        opt_g.zero_grad()
        self.manual_backward(g_loss)
        self.clip_gradients(opt_g, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        opt_g.step()

        self.set_requires_grad([self.d_a, self.d_b], True)
        fake_b = self.pool.query(fake_b.detach())
        d_loss = mse(self.d_b(real_b), torch.ones(len(real_a), 1)) + mse(
            self.d_b(fake_b), torch.zeros(len(real_a), 1)
        )
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        opt_d.step()
        self.log_dict({"g_loss": g_loss, "d_loss": d_loss}, on_step=True, on_epoch=True)
        return {"loss": g_loss.detach()}

    def on_train_epoch_end(self):
        for scheduler in self.lr_schedulers():
            scheduler.step()
        self.log("lr", self.lr_schedulers()[0].get_last_lr()[0])

    def configure_optimizers(self):
        opt_g = torch.optim.Adam(
            itertools.chain(self.g_ab.parameters(), self.g_ba.parameters()),
            lr=self.hparams.lr, betas=(0.5, 0.999),
        )  # fmt: skip
        opt_d = torch.optim.Adam(
            itertools.chain(self.d_a.parameters(), self.d_b.parameters()), lr=self.hparams.lr
        )

        def decay(epoch):
            return 1.0 - max(0, epoch - 1) / (self.hparams.n_epochs_decay + 1)

        schedulers = [torch.optim.lr_scheduler.LambdaLR(one, decay) for one in (opt_g, opt_d)]
        return [opt_g, opt_d], schedulers


def main():
    pl.seed_everything(7)
    model = CycleGAN()
    trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(model, DataLoader(digits(48), 16, shuffle=True))
    return {"steps": trainer.global_step}
