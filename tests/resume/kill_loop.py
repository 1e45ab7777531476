"""Kill a training again and again, and look at what it left. Started by test_killed.py.

    python kill_loop.py FOLDER SEED KILLS

One process imports torch and forks a child for each kill, which trains in FOLDER and resumes with
`ckpt_path="auto"`. It tells through a pipe when a save begins and when one is finished. Half of the
kills come during a save. The parent prints one JSON object a kill.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.trainer.restoring.find_checkpoint import find_checkpoint

BATCHES = [torch.full((2, 64), float(number)) for number in range(5)]


class Net(Module):
    """About 150 KB, with Adam half a megabyte."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Linear(512, 1))

    def training_step(self, batch, batch_idx):
        return self.layers(batch).square().mean() * 1e-6

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4)


class Reports(Callback):
    """Tells through a pipe of saves: `b` begun, `d` done, each with the batches done."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def on_save_checkpoint(self, trainer, module, checkpoint):
        os.write(self.pipe, f"b{trainer.progress.batches_completed}\n".encode())

    def on_checkpoint_saved(self, trainer, module, path):
        os.write(self.pipe, f"d{trainer.progress.batches_completed}\n".encode())


def make_trainer(folder: str, *callbacks: Callback) -> Trainer:
    saver = ModelCheckpoint(folder, save_top_k=1, save_last=True, every_n_train_steps=1)
    return Trainer(
        max_epochs=-1,
        accelerator="cpu",
        callbacks=[*callbacks, saver],
        logger=False,
        plugins=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def train(folder: str, pipe: int) -> None:
    make_trainer(folder, Reports(pipe)).fit(Net(), BATCHES, ckpt_path="auto")


def read_reports(pipe: int, until: float) -> list[str]:
    """Return the reports that come until a moment."""
    lines: list[str] = []
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            lines += os.read(pipe, 65536).decode().split()
    return lines


def kill_one(folder: str, choose: random.Random, *, in_save: bool) -> dict[str, object]:
    """Fork a child that trains, kill it, and tell what was going on."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a run says of its resume is not told
        code = 1
        try:
            train(folder, sending)
        finally:
            os._exit(code)
    os.close(sending)
    reports: list[str] = []
    if in_save:
        saves = choose.randrange(1, 6)
        while sum(line.startswith("b") for line in reports) < saves:
            chunk = os.read(receiving, 64).decode().split()
            assert chunk, "the child ended by itself"
            reports += chunk
        reports += read_reports(receiving, time.monotonic() + choose.random() * 0.006)
    else:
        reports += read_reports(receiving, time.monotonic() + choose.random() * 0.2)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    while chunk := os.read(receiving, 65536).decode():
        reports += chunk.split()
    os.close(receiving)
    done = [int(line[1:]) for line in reports if line.startswith("d")]
    return {
        "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
        "in_save": bool(reports) and reports[-1].startswith("b"),
        "finished": done[-1] if done else None,
    }


def warm_up() -> None:
    """Load what a training needs, so that the children need not."""
    with tempfile.TemporaryDirectory() as folder:
        for batches in (1, 2):
            trainer = make_trainer(folder)
            trainer.max_steps = batches
            trainer.fit(Net(), BATCHES, ckpt_path="auto")


def main() -> None:
    folder, seed, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "ckpt_path='auto' took")  # killed before a batch
    choose = random.Random(seed)
    warm_up()
    finished = 0
    for number in range(kills):
        told = kill_one(folder, choose, in_save=number % 2 == 0)
        finished = told["finished"] or finished
        found = find_checkpoint(make_trainer(folder), "auto", "fit", Net())
        batches = 0
        if found is not None:
            batches = read_checkpoint(found)["trainer_hooks"]["progress"]["batches_completed"]
        files = sorted(path.name for path in Path(folder).glob("*"))
        print(
            json.dumps({**told, "finished": finished, "found": batches, "files": files}), flush=True
        )


if __name__ == "__main__":
    main()
