"""Sweep over learning rates and widths.

`trainer-hooks sweep` trains a config with many values of its arguments, each trial in a process and
a folder of its own. This program writes the config and calls the command, which you may also type:

    trainer-hooks sweep run.yaml --set optimizer.lr=1e-3,1e-2 --set model.width=8,32

The config names the classes of this file by their place, `sweep.Classifier` and `sweep.Digits`.
Start the same line again after a kill: finished trials stay, the one that was cut goes on from its
checkpoint, and the others begin. At the end there is a table, and a page that compares the trials.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import DataModule, Module

CONFIG = """
seed_everything: 1
model: {class_path: sweep.Classifier, init_args: {width: 16}}
data: sweep.Digits
optimizer: {class_path: Adam, init_args: {lr: 0.001}}
trainer:
  max_epochs: EPOCHS
  log_every_n_steps: 10
  callbacks:
  - {class_path: ModelCheckpoint, init_args: {every_n_train_steps: 10}}
"""


class Classifier(Module):
    """Two layers on the pixels.

    Args:
        width: the number of units between the layers.
    """

    def __init__(self, width: int = 16):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def training_step(self, batch, batch_idx):
        images, targets = batch
        loss = nn.functional.cross_entropy(self.net(images), targets)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, targets = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(images), targets))


class Digits(DataModule):
    """The handwritten digits of scikit-learn."""

    def __init__(self):
        table = load_digits()
        images = torch.tensor(table.data, dtype=torch.float32) / 16
        self.data = TensorDataset(images, torch.tensor(table.target))

    def train_dataloader(self):
        part = torch.utils.data.Subset(self.data, range(1500))
        return DataLoader(part, batch_size=50, shuffle=True)

    def val_dataloader(self):
        return DataLoader(torch.utils.data.Subset(self.data, range(1500, 1797)), batch_size=99)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", default="runs/sweep")
    parser.add_argument("--rates", default="1e-3,1e-2")
    parser.add_argument("--widths", default="8,32")
    args = parser.parse_args()

    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "run.yaml"
    config.write_text(CONFIG.replace("EPOCHS", str(args.epochs)))
    settings = [f"--set=optimizer.lr={args.rates}", f"--set=model.width={args.widths}"]
    command = ["-m", "trainer_hooks", "sweep", str(config), *settings, "-o", str(folder / "trials")]
    # the trials import this file by its name
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    sys.exit(subprocess.run([sys.executable, *command], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
