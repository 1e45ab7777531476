"""Classify images, with augmentation.

A small convolutional net learns the handwritten digits of scikit-learn. Each image is shifted and
dimmed at random whenever it is loaded, so that no epoch shows the same images twice.

The augmentation draws from torch's random numbers, and a checkpoint holds these: a training that is
killed and started again by the same command sees the images that it would have seen. One saver
writes a checkpoint every 20 steps to go on from, the other keeps the best weights.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from trainer_hooks import Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint


class Digits(Dataset):
    """Images of 8 x 8 pixels with values from 0 to 1, and the digit that each shows."""

    def __init__(self, augment: bool):
        digits = load_digits()
        self.images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
        self.targets = torch.tensor(digits.target)
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = image.roll((down, right), dims=(1, 2)) * torch.empty(1).uniform_(0.7, 1.0)
        return image, self.targets[index]


class Classifier(Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 2 * 2, 10),
        )  # fmt: skip

    def training_step(self, batch, batch_idx):
        images, targets = batch
        loss = nn.functional.cross_entropy(self.net(images), targets)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, targets = batch
        hits = self.net(images).argmax(dim=1) == targets
        self.log("val_acc", hits.float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", default="runs/image_classifier")
    args = parser.parse_args()

    seed_everything(1)
    order = torch.randperm(1797).tolist()
    train = DataLoader(Subset(Digits(augment=True), order[:1500]), batch_size=50, shuffle=True)
    val = DataLoader(Subset(Digits(augment=False), order[1500:]), batch_size=100)

    best = ModelCheckpoint(monitor="val_acc", mode="max", filename="best-{val_acc:.3f}")
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        callbacks=[best, ModelCheckpoint(every_n_train_steps=20)],
        log_every_n_steps=10,
    )
    trainer.fit(Classifier(), train, val, ckpt_path="auto")
    print(f"accuracy {best.best_model_score:.3f}: {best.best_model_path}")


if __name__ == "__main__":
    main()
