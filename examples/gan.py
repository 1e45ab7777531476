"""Train a GAN.

Two nets with an optimizer each: the generator makes digits from noise, and the critic tells them
from those of scikit-learn. That does not fit "one loss, one step", so `training_step` does the
optimization itself: `automatic_optimization = False`, `manual_backward`, and a step of each
optimizer.

All is in the checkpoint: both nets, both optimizers, the random numbers of the noise. The latent
vectors of the pictures written after each epoch are a buffer, so it has these, too.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint

LATENT = 16
SHADES = " .:-=+*#%@"


class GAN(Module):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(
            nn.Linear(LATENT, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid()
        )
        self.critic = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
        self.register_buffer("shown", torch.randn(4, LATENT))

    def training_step(self, batch, batch_idx):
        for_generator, for_critic = self.optimizers()
        loss_of = nn.functional.binary_cross_entropy_with_logits
        real = torch.ones(len(batch), 1, device=self.device)

        with self.toggled_optimizer(for_critic):
            made = self.generator(torch.randn(len(batch), LATENT, device=self.device)).detach()
            critic_loss = loss_of(self.critic(batch), real) + loss_of(self.critic(made), real * 0)
            for_critic.zero_grad()
            self.manual_backward(critic_loss)
            for_critic.step()

        with self.toggled_optimizer(for_generator):
            made = self.generator(torch.randn(len(batch), LATENT, device=self.device))
            generator_loss = loss_of(self.critic(made), real)
            for_generator.zero_grad()
            self.manual_backward(generator_loss)
            for_generator.step()

        self.log_dict({"critic": critic_loss, "generator": generator_loss}, prog_bar=True)

    def configure_optimizers(self):
        return [
            torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.99)),
            torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.99)),
        ]


class WritePictures(Callback):
    """Write what the generator makes of the same four vectors, a text file for each epoch."""

    def on_train_epoch_end(self, trainer, module):
        with torch.no_grad():
            pictures = module.generator(module.shown).view(-1, 8, 8).cpu()
        rows = pictures.transpose(0, 1).flatten(1)  # the pictures beside each other
        lines = ["".join(SHADES[int(value * 9.99)] for value in row) for row in rows]
        path = Path(trainer.default_root_dir, f"epoch_{trainer.current_epoch}.txt")
        path.write_text("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--folder", default="runs/gan")
    args = parser.parse_args()

    seed_everything(1)
    digits = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        # a step of either optimizer counts, so this is every tenth batch
        callbacks=[ModelCheckpoint(every_n_train_steps=20), WritePictures()],
        log_every_n_steps=10,
    )
    trainer.fit(GAN(), DataLoader(digits, batch_size=64, shuffle=True), ckpt_path="auto")
    print(Path(args.folder, f"epoch_{args.epochs - 1}.txt").read_text())


if __name__ == "__main__":
    main()
