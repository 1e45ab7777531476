"""A module and its data that configs name, and a way to write and run a config."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from new_processes import forget_trainings

from trainer_hooks.cli.main import main

SOURCE = '''
from dataclasses import dataclass
from typing import Literal

import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer_hooks import Callback, DataModule, Module

RAN = []


class Line(Module):
    """A line.

    Args:
        width: how many inputs it has.
        outputs: how many values it gives.
        lr: how far a step goes.
    """

    def __init__(self, width: int = 4, outputs: int = 1, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, outputs)

    def training_step(self, batch, batch_idx):
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", (self.layer(batch[0]) - batch[1]).square().mean())

    def test_step(self, batch, batch_idx):
        self.log("test_loss", (self.layer(batch[0]) - batch[1]).square().mean())

    def predict_step(self, batch, batch_idx):
        return self.layer(batch[0])


class Trained(Line):
    """A line that has an optimizer of its own."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class Encoder(torch.nn.Module):
    """Comes first."""


class Dense(Encoder):
    """A layer.

    Args:
        activation: what follows it.
    """

    def __init__(self, activation: Literal["relu", "tanh"] = "relu") -> None:
        super().__init__()


@dataclass
class Head:
    """Comes last.

    Args:
        width: how wide it is.
    """

    width: int = 4


class Nested(Trained):
    """A line with parts.

    Args:
        encoder: comes first.
        head: comes last.
        rates: one, or several.
    """

    def __init__(
        self, encoder: Encoder, head: Head, rates: list[float] | float | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.rates = encoder, head, rates


class Keyed(Trained):
    """A line that is told secrets.

    Args:
        api_key: a secret.
        address: another one.
    """

    def __init__(self, api_key: str = "s3cret", address: str = "http://me:s3cret@x") -> None:
        super().__init__()


class Points(DataModule):
    """Random points.

    Args:
        size: how many make a batch.
    """

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.size = size
        self.values = 3

    def _loader(self, shuffle=False):
        points = torch.randn(16, 4, generator=torch.Generator().manual_seed(5))
        data = TensorDataset(points, points.sum(dim=1, keepdim=True))
        return DataLoader(data, batch_size=self.size, shuffle=shuffle)

    def train_dataloader(self):
        return self._loader(shuffle=True)

    def val_dataloader(self):
        return self._loader()

    def test_dataloader(self):
        return self._loader()

    def predict_dataloader(self):
        return self._loader()


class Stranger:
    def __init__(self) -> None:
        RAN.append("Stranger")


class Breaks(Callback):
    """Ends the process in the middle of an epoch."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed == self.at:
            raise RuntimeError("cut")


def ran():
    RAN.append("ran")


def made() -> Trained:
    RAN.append("made")
    return Trained()
'''

QUIET = """
trainer:
  accelerator: cpu
  max_epochs: 2
  log_every_n_steps: 1
  enable_progress_bar: false
  enable_model_summary: false
  plugins: false
"""


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    """The module `configured`, which can be imported."""
    folder = tmp_path_factory.mktemp("classes")
    (folder / "configured.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("configured", None)


@pytest.fixture
def here(tmp_path, monkeypatch, classes):
    """An empty working folder; the path and the environment are put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def config(here):
    """Write a config below the quiet one and return its path."""

    def config(text: str, name: str = "run.yaml", quiet: str = QUIET) -> str:
        (here / name).write_text(quiet + textwrap.dedent(text))
        return name

    return config


@dataclass(frozen=True)
class Answer:
    code: int | str | None
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line on standard error of what was refused; nothing ran."""
        assert self.code == 2, self
        assert self.err.count("\n") == 1, self.err
        assert not Path("trainer_logs").exists()
        return self.err.rstrip("\n")


@pytest.fixture
def ask(here, capsys):
    """Ask `trainer-hooks ...`."""

    def ask(*words: str) -> Answer:
        forget_trainings()  # each command has a process of its own
        capsys.readouterr()
        try:
            code: int | str | None = main(list(words))
        except SystemExit as exit_:
            code = exit_.code
        return Answer(code, *capsys.readouterr())

    return ask
