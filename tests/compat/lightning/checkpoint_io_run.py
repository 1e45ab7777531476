"""A training whose checkpoints a class of the user's writes.

    python checkpoint_io_run.py WHERE FOLDER CUT

WHERE is `home` (Lightning), `hosted` (Lightning's classes in a trainer_hooks.Trainer) or `here`
(our names). It prints the calls of the class as JSON. CUT is the number of the save in which the
process kills itself, halfway through the file; 0 for none.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

if __name__ != "__main__" or sys.argv[1] == "here":
    import trainer_hooks.compat.lightning as pl
    from trainer_hooks.compat.lightning.callbacks import ModelCheckpoint
    from trainer_hooks.compat.lightning.plugins.io import CheckpointIO
else:
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import ModelCheckpoint
    from pytorch_lightning.plugins.io import CheckpointIO

Trainer = pl.Trainer
if __name__ == "__main__" and sys.argv[1] == "hosted":
    from trainer_hooks import Trainer


class PickledFiles(CheckpointIO):
    """Write a checkpoint by pickle, behind a line of its own, as no reader of torch expects it."""

    def __init__(self, cut: int = 0) -> None:
        self.calls: list[list[object]] = []
        self.cut = cut

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        self.calls.append(["save", Path(path).name, storage_options])
        content = b"mine\n" + pickle.dumps(checkpoint)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if self.cut and len([call for call in self.calls if call[0] == "save"]) == self.cut:
            Path(path).write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        Path(path).write_bytes(content)

    def load_checkpoint(self, path, map_location=None, weights_only=None):
        self.calls.append(["load", Path(path).name])
        with Path(path).open("rb") as file:
            assert file.readline() == b"mine\n"
            return pickle.load(file)

    def remove_checkpoint(self, path):
        self.calls.append(["remove", Path(path).name])
        Path(path).unlink()


class Net(pl.LightningModule):
    """A layer with dropout, so that a resume must restore the random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("loss", self.layer(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


def data() -> DataLoader:
    """Return a shuffled loader of eight samples."""
    return DataLoader(torch.arange(32.0).reshape(8, 4), batch_size=2, shuffle=True)


def make(folder: str | Path, io: object, **options: object):
    """Return a trainer of three epochs that keeps the newest checkpoint of each two batches."""
    saver = ModelCheckpoint(
        dirpath=folder, filename="{step}", every_n_train_steps=2, save_last=False
    )
    return Trainer(
        max_epochs=3, accelerator="cpu", logger=False, callbacks=[saver], plugins=[io],
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, **options,
    )  # fmt: skip


if __name__ == "__main__":
    torch.manual_seed(3)
    files = PickledFiles(int(sys.argv[3]))
    trainer = make(sys.argv[2], files)
    net = Net()
    trainer.fit(net, data())
    trainer.save_checkpoint(Path(sys.argv[2], "by hand.ckpt"), storage_options={"speed": 2})
    trainer.validate(net, data(), ckpt_path=str(Path(sys.argv[2], "by hand.ckpt")), verbose=False)
    trainer.strategy.remove_checkpoint(Path(sys.argv[2], "by hand.ckpt"))
    print(json.dumps(files.calls))
