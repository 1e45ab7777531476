"""A program that trains in spawned processes and in those of `ddp`, and compares.

python spawned.py FOLDER PARTS
"""

import json
import os
import random
import signal
import sys
from pathlib import Path

import torch
from nets import At, Net, loader, trainer, weights

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint


class Noisy(Net):
    """A net that draws random numbers of torch and of Python."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * (1 + 0.1 * torch.rand(()).item() + 0.1 * random.random())


class Counts(Callback):
    """Counts the batches of its rank, in its state."""

    def __init__(self) -> None:
        self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]


def fail(trainer):
    raise ValueError("a bad hook")


def kill(trainer):
    os.kill(os.getpid(), signal.SIGKILL)


def fit_in(folder: Path, strategy: str, lengths: list[int], path: Path | None = None) -> dict:
    """Return the weights, counters and losses that fits up to these epochs leave in a module."""
    torch.manual_seed(1)
    random.seed(1)
    module, counts = Noisy(), Counts()
    saver = ModelCheckpoint(folder / strategy, filename="{epoch}", save_top_k=-1)
    fit = trainer(counts, saver, max_epochs=1, strategy=strategy, enable_checkpointing=True)
    for length in lengths:
        fit.max_epochs = length
        # of shuffled batches, the mean of each would be rounded otherwise in another validation
        fit.fit(module, loader(), loader(shuffle=False), ckpt_path=path)
    return {
        "weights": weights(module),
        "counts": [fit.current_epoch, fit.global_step, counts.batches],
        "loss": fit.callback_metrics["val_loss"].item(),
    }


def resume(folder: Path) -> dict:
    """Return what a fit from the checkpoint of another program leaves, and its validation."""
    path = folder / "ddp_spawn" / "epoch=1.ckpt"
    found = fit_in(folder / "resumed", "ddp_spawn", [4], path)
    module = Noisy()
    module.load_state_dict(torch.load(folder / "ddp/epoch=3.ckpt", weights_only=True)["state_dict"])
    tester = trainer(strategy="ddp_spawn")
    metrics = tester.validate(module, loader(shuffle=False), verbose=False)
    return found | {"validated": metrics[0]["val_loss"]}


def spoiled(callback: Callback) -> list:
    """Return the error of a training that fails, and whether its module has changed."""
    module = Net()
    before = weights(module)
    try:
        trainer(callback, strategy="ddp_spawn").fit(module, loader())
    except Exception as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        return [type(error).__name__, text, weights(module) != before]
    return []


PARTS = {
    "whole": lambda folder: fit_in(folder, "ddp", [4]),
    "halves": lambda folder: fit_in(folder, "ddp_spawn", [2, 4]),
    "resumed": resume,
    "fail": lambda folder: spoiled(At(1, fail)),
    "kill": lambda folder: spoiled(At(1, kill)),
    "local": lambda folder: spoiled(At(1, lambda trainer: None)),
}


if __name__ == "__main__":
    place, names = Path(sys.argv[1]), sys.argv[2:]
    result = {name: PARTS[name](place) for name in names}
    if os.environ.get("RANK", "0") == "0":
        place.joinpath(f"{names[0]}.json").write_text(json.dumps(result))
