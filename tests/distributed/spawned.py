"""A program that trains in spawned processes and in those of `ddp`, and compares.

python spawned.py FOLDER STRATEGY
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


def main(folder: Path, strategy: str) -> dict:
    """Return what a training of four epochs leaves, whole and in two fits."""
    found = {}
    for name, lengths in (("whole", [4]), ("halves", [2, 4])):
        torch.manual_seed(1)
        random.seed(1)
        module, counts = Noisy(), Counts()
        saver = ModelCheckpoint(folder / strategy / name, filename="{epoch}", save_top_k=-1)
        fit = trainer(counts, saver, max_epochs=1, strategy=strategy, enable_checkpointing=True)
        for length in lengths:
            fit.max_epochs = length
            fit.fit(module, loader(), loader())
        found[name] = weights(module)
        found[f"{name} counts"] = [fit.current_epoch, fit.global_step, counts.batches]
        found[f"{name} loss"] = fit.callback_metrics["val_loss"].item()
    torch.manual_seed(5)
    saver = ModelCheckpoint(folder / strategy / "whole", filename="{epoch}", save_top_k=-1)
    resumed = trainer(Counts(), saver, max_epochs=4, strategy=strategy, enable_checkpointing=True)
    other = Noisy()
    resumed.fit(other, loader(), loader(), ckpt_path=folder / strategy / "whole/epoch=1.ckpt")
    found["resumed"] = weights(other)
    found["validated"] = fit.validate(module, loader(), verbose=False)[0]["val_loss"]
    return found


def spoiled() -> dict:
    """Return the errors of trainings that fail in one rank, and of what cannot be pickled."""
    found = {}
    for name, callback in (("fail", At(1, fail)), ("kill", At(1, kill)),
                           ("local", At(1, lambda trainer: None))):  # fmt: skip
        module = Net()
        before = weights(module)
        try:
            trainer(callback, strategy="ddp_spawn").fit(module, loader())
        except Exception as error:
            text = "\n".join([str(error), *getattr(error, "__notes__", [])])
            found[name] = [type(error).__name__, text]
        found[f"{name} moved"] = weights(module) != before
    return found


if __name__ == "__main__":
    place, kind = Path(sys.argv[1]), sys.argv[2]
    result = main(place, kind)
    if kind == "ddp_spawn":
        result |= spoiled()
    if os.environ.get("RANK", "0") == "0":
        place.joinpath(f"{kind}.json").write_text(json.dumps(result))
