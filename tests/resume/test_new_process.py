"""A run that is killed goes on in a new process as if it had not been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import warm_python

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

SCRIPT = textwrap.dedent(
    """
    import os, random, signal, sys, warnings
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset
    from trainer_hooks import Callback, Module, Trainer, seed_everything
    from trainer_hooks.errors import TrainerHooksAdvice

    warnings.simplefilter("ignore", TrainerHooksAdvice)  # validations are shuffled on purpose
    from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint

    torch.set_num_threads(1)
    kill_hook, kill_at, ckpt_path = sys.argv[1], int(sys.argv[2]), sys.argv[3] or None

    class Noisy(Dataset):
        def __len__(self):
            return 18
        def __getitem__(self, index):
            noise = random.random() + np.random.rand() + torch.rand(()).item()
            return torch.tensor([index / 18, noise])

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(2, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)
            )
        def training_step(self, batch, batch_idx):
            loss = self.layers(batch).square().mean()
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.layers(batch).square().mean())
        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    class Kill(Callback):
        def run_event(self, event, trainer, *args):
            if event == kill_hook and trainer.progress.batches_completed == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    saver = ModelCheckpoint(
        "saved", every_n_train_steps=1, save_top_k=-1, save_last=True, filename="{step}",
        enable_version_counter=False,
    )
    seed_everything(7 if ckpt_path is None else 12345, verbose=False)
    module = Net()
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", accumulate_grad_batches=2, logger=False, plugins=False,
        enable_progress_bar=False, enable_model_summary=False, val_check_interval=0.6,
        callbacks=[Kill(), saver, EarlyStopping("val_loss", patience=99)],
    )
    train = DataLoader(Noisy(), batch_size=4, shuffle=True)
    trainer.fit(module, train, DataLoader(Noisy(), batch_size=6, shuffle=True), ckpt_path=ckpt_path)
    trainer.save_checkpoint("end.ckpt")
    """
)


def start(
    folder: Path,
    *,
    kill: tuple[str, int] = ("", -1),
    ckpt_path: str = "",
    run: Callable[..., subprocess.CompletedProcess] = warm_python.run,
) -> int:
    """Run the script in a process of its own and return how it ended."""
    folder.mkdir(exist_ok=True)
    return run(
        [sys.executable, "-W", "error", "-c", SCRIPT, kill[0], str(kill[1]), ckpt_path],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=100,
        check=False,
    ).returncode


def same(first, second, path="") -> bool:
    """Return whether two checkpoints hold the same, bit for bit, but for the folder's name."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, str) and ".ckpt" in first:
        return Path(first).name == Path(second).name
    return first == second


@pytest.fixture(scope="module")
def uncut(tmp_path_factory):
    """What a run that nobody killed ends with."""
    folder = tmp_path_factory.mktemp("uncut")
    assert start(folder) == 0
    return end_of(folder)


def end_of(folder: Path) -> dict:
    """Return what a run ended with, without its wall times."""
    end = torch.load(folder / "end.ckpt", weights_only=True)
    assert end["trainer_hooks"].pop("wall_times")
    return end


@pytest.mark.parametrize(
    ("kill", "left", "run"),
    [
        # one of them in a new interpreter, with another hash seed: its start takes two seconds
        (("on_before_backward", 4), "step=2", subprocess.run),
        pytest.param(
            ("on_validation_batch_end", 8), "step=4", warm_python.run, marks=pytest.mark.exhaustive
        ),
        (("on_before_optimizer_step", 11), "last", warm_python.run),
    ],
    ids=["in a batch", "in a validation", "in a later epoch"],
)
def test_a_killed_run_goes_on_in_a_new_process(tmp_path, uncut, kill, left, run):
    """After SIGKILL the newest checkpoint is whole, and another process ends as the uncut run."""
    assert start(tmp_path, kill=kill) == -signal.SIGKILL
    assert not list((tmp_path / "saved").glob(".*")), "a temporary file was left"
    newest = tmp_path / "saved" / f"{left}.ckpt"
    assert newest.is_file()
    assert start(tmp_path, ckpt_path=str(newest), run=run) == 0
    end = end_of(tmp_path)
    for checkpoint in (uncut, end):
        for state in checkpoint["callbacks"].values():
            state.pop("dirpath", None)
    assert [key for key in uncut if not same(uncut[key], end[key])] == []
