"""A small module with its config, and a way to run `trainer-hooks sweep` in a process."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import warm_python

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[3]

SOURCE = '''
import os
import signal

import torch

from trainer_hooks import Callback, DataModule, Module


class Line(Module):
    """A line whose loss depends on all that a sweep changes."""

    def __init__(self, lr: float = 0.1, offset: int = 0, log_as: str = "val_loss") -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        if self.hparams.offset == 13:
            raise RuntimeError("offset 13 cannot be trained")
        return (self.layer(batch).sum() - self.hparams.offset).square()

    def validation_step(self, batch, batch_idx):
        value = self.layer(batch).square().mean() + self.hparams.offset
        self.log(self.hparams.log_as, value * float("nan") if self.hparams.offset == 99 else value)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class Points(DataModule):
    def train_dataloader(self):
        return list(torch.randn(4, 2, 2, generator=torch.Generator().manual_seed(1)))

    def val_dataloader(self):
        return self.train_dataloader()[:1]


class Waits(Callback):
    """Tells a pipe that the second epoch has begun, and goes on when somebody writes an answer."""

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1 and "BEGUN" in os.environ:
            with open(os.environ["BEGUN"], "w") as begun:
                begun.write(f"{os.getpid()}\\n")
            with open(os.environ["ANSWER"]) as answer:
                answer.read()


class Dies(Callback):
    """Kills its process once, as the training of a large offset has ended."""

    def on_fit_end(self, trainer, module):
        mark = os.path.join(trainer.default_root_dir, "killed")
        if module.hparams.offset >= 50 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
'''

CONFIG = """
seed_everything: 1
model: swept.Line
data: swept.Points
trainer:
  max_epochs: 3
  accelerator: cpu
  enable_progress_bar: false
  enable_model_summary: false
  plugins: false
  callbacks: [swept.Waits]
"""


class Sweeper:
    """Runs sweeps of one config in one folder."""

    FORKED: ClassVar[dict[str, Any]] = {
        "imports": ("optuna", "jsonargparse", "trainer_hooks.cli.sweep.trial"),
        "forks_children": True,
    }
    """How `warm_python` starts a sweep: its trials have imported the modules of a trial already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "trainer_hooks", "sweep", "run.yaml", *words]

    def run(self, *words: str, forks_trials: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a sweep; without `forks_trials` each trial is a new interpreter, as for users."""
        forked = self.FORKED if forks_trials else {}
        return warm_python.run(
            self.command(*words), cwd=self.folder, env=self.environ, text=True,
            capture_output=True, check=False, **forked,
        )  # fmt: skip

    @staticmethod
    def rows_of(printed: str) -> list[list[str]]:
        """Return the cells of a table but the times: trial, values, metric, state, folder."""
        lines = [line.split() for line in printed.splitlines() if "/trial_" in line]
        return [[*cells[:-3], cells[-1]] for cells in lines]

    def wait_for(self, pid: int) -> None:
        """Wait for the end of a process that is no child of this one."""
        descriptor = os.pidfd_open(pid)
        select.select([descriptor], [], [])
        os.close(descriptor)


@pytest.fixture
def sweeper(tmp_path) -> Sweeper:
    pytest.importorskip("optuna", minversion="4.9")
    pytest.importorskip("jsonargparse")
    (tmp_path / "swept.py").write_text(SOURCE)
    (tmp_path / "run.yaml").write_text(CONFIG)
    return Sweeper(tmp_path)
