"""Start many runs at once: `python concurrent_runs.py ROOT COUNT [kill]`, a JSON line for each.

The processes are forks of one that has imported torch, since so many imports would take minutes.
With `kill` each run kills itself in its second epoch; without it, it goes on if it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint

BATCHES = [torch.ones(2, 2)] * 3


class Net(Module):
    """Its weight counts its steps and tells whose it is: one step is one hundredth of `mine`."""

    def __init__(self, mine: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx):
        self.log("weight", self.weight.detach())
        return -self.weight.sum() / 100

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.mine)


class Watch(Callback):
    """Note the folder as setup has it, and whether it is there."""

    def __init__(self, kills: bool) -> None:
        self.kills = kills
        self.told = ""

    def setup(self, trainer, module, stage):
        self.told = trainer.log_dir if Path(trainer.log_dir).is_dir() else ""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if self.kills and trainer.global_step == 5:
            os.kill(os.getpid(), signal.SIGKILL)


def train(root: str, mine: float, kills: bool) -> dict[str, object]:
    """Train one run and return where it wrote."""
    watch, saver = Watch(kills), ModelCheckpoint(monitor="weight", mode="max", save_last=True)
    trainer = Trainer(
        callbacks=[watch, saver],
        max_epochs=3,
        log_every_n_steps=3,
        accelerator="cpu",
        default_root_dir=root,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(mine), BATCHES, ckpt_path="auto")
    return {
        "mine": mine,
        "told": watch.told,
        "log_dir": trainer.log_dir,
        "resumed_from": trainer.ckpt_path,
        "best": saver.best_model_path,
        "last": saver.last_model_path,
    }


def main(root: str, count: int, kills: bool) -> None:
    """Fork the runs, let all of them go at one moment, and wait for them."""
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # these files need not survive a power cut
    with TemporaryDirectory() as elsewhere:  # what a run imports as it goes is imported once
        train(elsewhere, 1.0, kills=False)
    gate, opener = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(opener)
            os.read(gate, 1)  # until nobody holds the other end any more
            line = json.dumps(train(root, float(number + 1), kills))
            Path(root, f"run-{number}.json").write_text(line)
            os._exit(0)
        children.append(child)
    os.close(opener)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), "kill" in os.environ.get("TOGETHER", ""))
