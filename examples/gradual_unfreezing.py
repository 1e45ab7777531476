"""Unfreeze a backbone gradually.

A net that knows the digits 0 to 4 learns 5 to 9. At first only its new head is trained; then each
epoch unfreezes one more layer of the backbone, from the top, at a smaller learning rate than the
one above it. Early noise of the new head cannot destroy the backbone.

The optimizer begins with the head's parameters and gets a group with each layer. A resume in the
middle restores the frozen layers and the optimizer's groups as they were.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Module, Trainer, seed_everything
from trainer_hooks.callbacks import BaseFinetuning, ModelCheckpoint


def digits(first: int) -> DataLoader:
    """Return the images of five digits, as rows of 64 pixels."""
    table = load_digits()
    images = torch.tensor(table.data, dtype=torch.float32) / 16
    targets = torch.tensor(table.target) - first
    wanted = (targets >= 0) & (targets < 5)
    return DataLoader(TensorDataset(images[wanted], targets[wanted]), batch_size=32, shuffle=True)


class Classifier(Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Sequential(nn.Linear(64, 64), nn.ReLU()),
            nn.Sequential(nn.Linear(64, 64), nn.ReLU()),
        )
        self.head = nn.Linear(64, 5)

    def training_step(self, batch, batch_idx):
        images, targets = batch
        scores = self.head(self.backbone(images))
        self.log("train_acc", (scores.argmax(dim=1) == targets).float().mean(), prog_bar=True)
        return nn.functional.cross_entropy(scores, targets)

    def configure_optimizers(self):
        return torch.optim.Adam((p for p in self.parameters() if p.requires_grad), lr=3e-3)


class GradualUnfreezing(BaseFinetuning):
    """Train one layer of the backbone more with each epoch, the top one first."""

    def freeze_before_training(self, module):
        self.freeze(module.backbone)

    def finetune_function(self, module, epoch, optimizer):
        layers = list(module.backbone)[::-1]
        if 1 <= epoch <= len(layers):
            rate = 3e-3 / 3**epoch
            self.unfreeze_and_add_param_group(layers[epoch - 1], optimizer, lr=rate)


def train(module, data, folder, epochs, *callbacks):
    """Train in a folder of its own, and go on there if the training was killed."""
    trainer = Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[ModelCheckpoint(every_n_train_steps=10), *callbacks],
        log_every_n_steps=5,
    )
    trainer.fit(module, data, ckpt_path="auto")
    return trainer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--folder", default="runs/gradual_unfreezing")
    args = parser.parse_args()

    seed_everything(1)
    module = Classifier()
    # a finished training has nothing to do when the program is started again
    train(module, digits(0), f"{args.folder}/pretraining", 2)

    seed_everything(2)
    tuned = Classifier()
    tuned.backbone.load_state_dict(module.backbone.state_dict())
    finetuning = GradualUnfreezing()
    trainer = train(tuned, digits(5), f"{args.folder}/finetuning", args.epochs, finetuning)
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    print(f"accuracy {trainer.callback_metrics['train_acc']:.3f}, learning rates {rates}")


if __name__ == "__main__":
    main()
