"""A process that trains several folds one after the other, each with `ckpt_path="auto"`.

A fold's module has its number in a buffer, which its checkpoints hold: a fold that is given the
checkpoint of another one raises. As a program it prints a line for each fold that is done, and
`KILL=FOLD:STEP` in the environment kills it in that step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler, TensorDataset

from trainer_hooks import Callback, DataModule, Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import CheckpointNotFoundError
from trainer_hooks.loggers import CSVLogger

if TYPE_CHECKING:
    import random

SAMPLES, BATCH, EPOCHS = 30, 4, 2


class WrongFileError(Exception):
    """A fold was given the checkpoint of another one."""


class Net(Module):
    """A layer with dropout, which knows its fold."""

    def __init__(self, fold: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Dropout(0.2), nn.Linear(3, 1))
        self.register_buffer("fold", torch.tensor(fold))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x = batch[0] if isinstance(batch, list) else batch
        loss = (self.layer(x) - x.sum(dim=1, keepdim=True)).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("size", self.layer(batch).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.1)


class Pretrained(Net):
    """Another class, which is trained before the folds."""


class Opaque(Dataset):
    """Samples that are made when they are asked for: nothing tells one fold's from another's."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return len(self.make())

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.make()[index]


class Data(DataModule):
    """The data of a fold, made in `setup`."""

    def __init__(self, fold: int, folds: int) -> None:
        super().__init__()
        self.fold, self.folds = fold, folds

    def train_dataloader(self) -> DataLoader:
        return DataLoader(samples()[chosen(self.fold, self.folds)], BATCH, shuffle=True)


def samples() -> torch.Tensor:
    """Return the samples, the same each time."""
    return torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(5))


def chosen(fold: int, folds: int) -> list[int]:
    """Return the indices of a fold's training samples."""
    return [index for index in range(SAMPLES) if index % folds != fold % folds]


class Follows(Callback):
    """Checks whose weights were restored, counts trained steps, and kills the process if it must.

    Args:
        fold: the fold.
        step: the step in which the process is to end; 0 for none.
        kill: ends it.
    """

    def __init__(self, fold: int, step: int = 0, kill: Any = None) -> None:
        self.fold, self.step, self.kill = fold, step, kill
        self.trained = 0

    def on_after_load(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        if int(module.fold) != self.fold:
            raise WrongFileError(f"fold {self.fold} was given {trainer.ckpt_path}")

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        self.trained += 1
        if trainer.global_step == self.step:
            self.kill()


@dataclass
class Folds:
    """How a script tells its folds apart, by drawn options.

    Attributes:
        folder: the folder of all files.
        folds: the number of folds.
        seeds: `"each"`: a seed for each fold; `"once"`: one seed at the beginning of the process;
            `"same"`: the same seed for each fold; `"none"`: none.
        data: how the loader holds the samples.
        place: what is given of folders and loggers.
        every: the number of steps between two saves, or 0 for one save an epoch.
        skips: whether folds that are done are left out when the script is started again.
        apart: whether each fold is trained in a process of its own.
        pretrains: whether another module is trained before the folds, in the same place.
        evaluates: whether other trainers evaluate a fold that is done, by a word.
        begin_process: called as a process begins.
    """

    folder: Path
    folds: int = 3
    seeds: str = "each"
    data: str = "tensors"
    place: str = "default"
    every: int = 0
    skips: bool = False
    apart: bool = False
    pretrains: bool = False
    evaluates: bool = False
    begin_process: Any = None
    done: dict[int, list[float]] = field(default_factory=dict)

    @classmethod
    def draw(cls, chance: random.Random, folder: Path) -> Folds:
        """Return a random script."""
        drawn = cls(
            folder,
            chance.randint(2, 4),
            chance.choice(SEEDS),
            chance.choice(DATA),
            chance.choice(PLACES),
            chance.choice([0, 1, 3]),
        )
        # a script that leaves folds out must let them be told apart by more than their order
        drawn.skips = drawn.is_told_apart and chance.random() < 0.4
        drawn.apart = drawn.is_told_apart and chance.random() < 0.3
        drawn.pretrains, drawn.evaluates = chance.random() < 0.3, chance.random() < 0.3
        return drawn

    @property
    def is_told_apart(self) -> bool:
        """Whether anything but their order tells the folds apart."""
        has_seeds = self.seeds == "each" and self.place != "same dirpath"
        is_in_place = self.place in ("version", "root", "dirpath", "name")
        is_in_default = self.place in ("default", "no logger")
        return has_seeds or is_in_place or (self.data != "opaque" and is_in_default)

    @property
    def steps(self) -> int:
        """The number of steps of a whole fold."""
        return EPOCHS * -(-len(chosen(0, self.folds)) // BATCH)

    def data_of(self, fold: int) -> Any:
        """Return the loader or the data module of a fold."""
        indices, data = chosen(fold, self.folds), TensorDataset(samples())
        if self.data == "tensors":
            return DataLoader(TensorDataset(samples()[indices]), BATCH, shuffle=True)
        if self.data == "subset":
            return DataLoader(Subset(data, indices), BATCH, shuffle=True)
        if self.data == "sampler":
            return DataLoader(data, BATCH, sampler=SubsetRandomSampler(indices))
        if self.data == "opaque":
            return DataLoader(Opaque(lambda: samples()[indices]), BATCH, shuffle=True)
        return Data(fold, self.folds)

    def trainer(self, fold: int, *callbacks: Callback) -> Trainer:
        """Return the trainer of a fold."""
        options: dict[str, Any] = {"default_root_dir": self.folder}
        dirpath, logger = None, None
        if self.place == "version":
            logger = CSVLogger(self.folder / "logs", version=f"fold_{fold}")
        elif self.place == "name":
            logger = CSVLogger(self.folder / "logs", name=f"fold_{fold}")
        elif self.place == "root":
            options["default_root_dir"] = self.folder / f"fold_{fold}"
            logger = CSVLogger(self.folder / "logs")
        elif self.place == "no logger":
            logger = False
        elif self.place == "dirpath":
            dirpath = self.folder / f"fold_{fold}"
        elif self.place == "same dirpath":
            dirpath = self.folder / "saved"
        if logger is not None:
            options["logger"] = logger
        every = {"every_n_train_steps": self.every} if self.every else {}
        saver = ModelCheckpoint(dirpath, save_last=True, **every)
        return Trainer(
            max_epochs=EPOCHS,
            callbacks=[*callbacks, saver],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            accelerator="cpu",
            plugins=False,
            log_every_n_steps=1,
            **options,
        )

    def run(self, kill_fold: int = -1, step: int = 0, kill: Any = None) -> list[Follows]:
        """Train all folds, each from where it was; return what happened to each.

        Args:
            kill_fold: the fold in which the process ends, or -1.
            step: the step in which it ends.
            kill: ends it.
        """
        followers = []
        self.start()
        for fold in range(self.folds):
            if self.skips and fold in self.done:
                continue
            if self.apart:
                self.start()
            if self.seeds in ("each", "same"):
                seed_everything(fold if self.seeds == "each" else 3, verbose=False)
            follower = Follows(fold, step if fold == kill_fold else 0, kill)
            net, trainer = Net(fold), self.trainer(fold, follower)
            trainer.fit(net, self.data_of(fold), ckpt_path="auto")
            followers.append(follower)
            self.done[fold] = [*net.layer[1].weight[0].tolist(), net.layer[1].bias.item()]
            self.tell(fold, follower, trainer)
            if self.evaluates:
                self.evaluate(fold, net)
        return followers

    def start(self) -> None:
        """Begin a process, with its one seed and the training before the folds."""
        if self.begin_process is not None:
            self.begin_process()
        if self.seeds == "once":
            seed_everything(1, verbose=False)
        if self.pretrains:
            self.trainer(99).fit(Pretrained(99), self.data_of(0), ckpt_path="auto")

    def evaluate(self, fold: int, net: Net) -> None:
        """Evaluate a fold by a word in trainers that have trained nothing."""
        data = [samples()[:4]]
        self.trainer(fold, Follows(fold)).validate(net, data, ckpt_path="last", verbose=False)
        with suppress(CheckpointNotFoundError):  # where nothing says which is meant
            self.trainer(fold, Follows(fold)).validate(
                Net(fold), data, ckpt_path="best", verbose=False
            )

    def tell(self, fold: int, follower: Follows, trainer: Trainer) -> None:
        """Be told of a fold that is done."""


SEEDS = ("each", "once", "same", "none")
DATA = ("tensors", "subset", "sampler", "opaque", "module")
PLACES = ("default", "version", "name", "root", "dirpath", "no logger", "same dirpath")


class PrintedFolds(Folds):
    """Folds of which each that is done is a line on the output."""

    def tell(self, fold: int, follower: Follows, trainer: Trainer) -> None:
        """Print the fold."""
        path = trainer.ckpt_path
        told = {
            "fold": fold,
            "trained": follower.trained,
            "weights": [number.hex() for number in self.done[fold]],
            "from": None if path is None else os.path.relpath(path, self.folder),
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    kill_fold, _, kill_step = os.environ.get("KILL", "-1:0").partition(":")
    os.chdir(options["folder"])
    PrintedFolds(**{**options, "folder": Path(options["folder"])}).run(
        int(kill_fold), int(kill_step), lambda: os.kill(os.getpid(), signal.SIGKILL)
    )
