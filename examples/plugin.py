"""Write a plugin package.

A package can bring callbacks that take part in every training where it is installed, without a line
in a script. It needs two things: a function that returns callbacks, and an entry point that names
it. This program writes such a package to a folder, the least that there can be, and then trains in
a process that has the folder on its path. A package of yours has a `pyproject.toml` instead, with
these lines, and `pip install` does the rest:

    [project.entry-points."trainer_hooks.callbacks_factory"]
    sample_count = "sample_count:callbacks"

`trainer-hooks plugins new` writes a complete project with tests; the folder `plugins_example` of
the repository has two. The state of a plugin's callback is in the checkpoints like that of any
other, so the count of samples goes on after a resume.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint

MODULE = '''
"""A callback that counts samples, for every training."""

from trainer_hooks import Callback


class SampleCount(Callback):
    def __init__(self):
        self.samples = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.samples += len(batch[0])

    def on_train_end(self, trainer, module):
        print(f"{self.samples} samples so far")

    def state_dict(self):
        return {"samples": self.samples}

    def load_state_dict(self, state_dict):
        self.samples = state_dict["samples"]


def callbacks():
    return [SampleCount()]
'''


def write_package(folder: Path):
    """Write an installed package as pip would: its module, its name, its entry point."""
    about = folder / "sample_count-1.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (folder / "sample_count.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sample-count\nVersion: 1.0\n")
    entry = "[trainer_hooks.callbacks_factory]\nsample_count = sample_count:callbacks\n"
    (about / "entry_points.txt").write_text(entry)


class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def train(folder: str, epochs: int):
    """Train without a word about the plugin."""
    seed_everything(1)
    inputs = torch.randn(640, 4)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    trainer = Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[ModelCheckpoint(every_n_train_steps=15)],
        log_every_n_steps=10,
    )
    for plugin in trainer.plugins:
        print("plugin:", plugin.label, plugin.status)
    trainer.fit(Line(), DataLoader(data, batch_size=32, shuffle=True), ckpt_path="auto")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", default="runs/plugin")
    parser.add_argument("--inner", action="store_true", help="train here, with what is installed")
    args = parser.parse_args()

    if args.inner:
        train(args.folder, args.epochs)
        return
    packages = Path(args.folder, "packages")
    write_package(packages)
    path = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, __file__, *sys.argv[1:], "--inner"]
    sys.exit(subprocess.run(command, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
