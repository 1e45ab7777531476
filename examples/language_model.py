"""Train a language model from scratch, with FSDP.

A small transformer learns to write the next character of scikit-learn's descriptions of its data
sets. The script starts two processes; each holds half of every layer's weights, gradients and
optimizer state. The learning rate warms up and then follows a cosine, and the gradients of two
batches make one step.

Checkpoints are folders, to which each process writes its share. If the processes die, the same
command goes on from the newest whole folder. With GPUs pass `--accelerator gpu`, and write
`precision="bf16-mixed"`; `--devices` is the number of processes on a machine, also under `torchrun`
and SLURM.
"""

import argparse
import math

import torch
from sklearn import datasets
from torch import nn
from torch.utils.data import DataLoader, Dataset

from trainer_hooks import FSDPStrategy, Module, Trainer, seed_everything
from trainer_hooks.callbacks import LearningRateMonitor, ModelCheckpoint

LENGTH, WIDTH = 32, 32


class Characters(Dataset):
    """Pieces of a text as numbers, each with the pieces one character further on."""

    def __init__(self, count: int):
        loaders = (datasets.load_digits, datasets.load_iris, datasets.load_wine)
        text = "".join(load().DESCR for load in loaders)
        self.alphabet = sorted(set(text))
        self.codes = torch.tensor([self.alphabet.index(character) for character in text])
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        start = index * 17 % (len(self.codes) - LENGTH - 1)
        piece = self.codes[start : start + LENGTH + 1]
        return piece[:-1], piece[1:]


class LanguageModel(Module):
    def __init__(self, characters: int, lr: float = 3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=0.1, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, codes):
        x = self.embedding(codes) + self.position(torch.arange(codes.shape[1], device=self.device))
        mask = nn.Transformer.generate_square_subsequent_mask(codes.shape[1], device=self.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x.flatten(0, 1))  # a row of scores for each character

    def training_step(self, batch, batch_idx):
        codes, following = batch
        loss = nn.functional.cross_entropy(self(codes), following.flatten())
        self.log("train_loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        steps = self.trainer.estimated_stepping_batches
        warm_up = max(1, steps // 10)

        def factor(step):
            if step < warm_up:
                return (step + 1) / warm_up
            return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", default="runs/language_model")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--accelerator", default="cpu")
    args = parser.parse_args()

    seed_everything(1)
    data = Characters(640)
    strategy = FSDPStrategy(
        auto_wrap_policy={nn.TransformerEncoderLayer}, state_dict_type="sharded"
    )
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        accelerator=args.accelerator,
        devices=args.devices,
        strategy=strategy,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(every_n_train_steps=5), LearningRateMonitor("step")],
        log_every_n_steps=5,
    )
    loader = DataLoader(data, batch_size=16, shuffle=True)
    trainer.fit(LanguageModel(len(data.alphabet)), loader, ckpt_path="auto")
    trainer.print(f"loss {trainer.callback_metrics['train_loss']:.3f}")


if __name__ == "__main__":
    main()
