"""Small runs whose checkpoints are looked into, and a way to ask the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from small_modules import LinearWithHyperparameters
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Trainer
from trainer_hooks.cli.main import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line on stderr; nothing was printed."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err


@pytest.fixture
def ask(capsys):
    """Ask `trainer-hooks checkpoint ...`."""

    def ask(*arguments: object) -> Answer:
        capsys.readouterr()
        code = main(["checkpoint", *map(str, arguments)])
        return Answer(code, *capsys.readouterr())

    return ask


class LogsLoss(LinearWithHyperparameters):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss


class Counter(Callback):
    """Counts, and keeps a long list."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def state_key(self) -> str:
        return self._generate_state_key(what="batches")

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "list": list(range(100)), "best": torch.tensor(0.5)}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1


class _SaveAt(Callback):
    def __init__(self, paths) -> None:
        self.paths = paths

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        path = self.paths.get(trainer.progress.batches_completed)
        if path is not None:
            trainer.save_checkpoint(path)


@pytest.fixture
def save(tmp_path):
    """Fit a net for an epoch of three batches and save it.

    Returns the path of the checkpoint at the end. `at` gives paths to save to after how many
    batches; their clocks are set a minute apart, the later ones newer.
    """

    def save(
        name: str = "end.ckpt", *, at=None, width: int = 2, weights_only=False, options=None
    ) -> str:
        torch.manual_seed(1)
        data = DataLoader(TensorDataset(torch.ones(6, width)), batch_size=2)
        paths = {count: str(tmp_path / at_name) for count, at_name in (at or {}).items()}
        trainer = Trainer(
            callbacks=[Counter(), _SaveAt(paths)], default_root_dir=tmp_path, max_epochs=1,
            **QUIET_OPTIONS, **(options or {}),
        )  # fmt: skip
        trainer.fit(LogsLoss(width), data)
        path = str(tmp_path / name)
        trainer.save_checkpoint(path, weights_only)
        for age, file in enumerate([path, *reversed(paths.values())]):
            moment = 1_700_000_000 - 60 * age
            os.utime(file, (moment, moment))
        return path

    return save


@pytest.fixture
def net_type():
    return LogsLoss


@pytest.fixture
def changed():
    """Write a checkpoint again with a change."""
    from trainer_hooks.checkpoint.file import read_checkpoint, write_checkpoint

    def changed(path, target, change) -> str:
        checkpoint = read_checkpoint(path)
        change(checkpoint)
        return write_checkpoint(checkpoint, target)

    return changed
