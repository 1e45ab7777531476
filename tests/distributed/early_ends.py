"""Ranks that fail, die or vanish: early_ends.py TARGET runs each case, and writes what came of it.

TARGET gets one JSON object: by case the exit codes, and what the ranks have printed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from forked_ranks import fork_ranks
from random_chains import warm_up
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainer_hooks import Callback, FSDPStrategy, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.runtime import rank_watchdog

PHASES = (
    "train_dataloader", "val_dataloader", "sanity check", "training", "validation", "validate",
    "test", "predict",
)  # fmt: skip


class Samples(Dataset):
    """Eight samples; those from `bad` on are an error in rank 1."""

    def __init__(self, rank: int, bad: int = 8) -> None:
        self.bad = bad if rank else 8

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.bad:
            raise ValueError("a bad sample of rank 1")
        return torch.ones(1)


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("loss", self.training_step(batch, batch_idx), sync_dist=True)

    test_step = validation_step

    def predict_step(self, batch, batch_idx):
        return self.layer(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(*callbacks: Callback, **options: Any) -> Trainer:
    quiet = {
        "accelerator": "cpu", "logger": False, "plugins": False, "enable_progress_bar": False,
        "enable_model_summary": False, "max_epochs": 2, "num_sanity_val_steps": 0,
        "enable_checkpointing": bool(callbacks), "strategy": "ddp",
    }  # fmt: skip
    return Trainer(callbacks=list(callbacks), **{**quiet, **options})


def has_bad_sample(phase: str, rank: int, strategy: str) -> None:
    """Load a sample that is an error in rank 1, in some phase."""
    good, bad = DataLoader(Samples(rank), 2), DataLoader(Samples(rank, 4), 2)

    class Makes(Net):
        def train_dataloader(self):
            return good if phase != "train_dataloader" else [Samples(rank, 4)[4]]

        def val_dataloader(self):
            return good if phase != "val_dataloader" else [Samples(rank, 4)[4]]

    checks = {"num_sanity_val_steps": -1} if phase == "sanity check" else {}
    one = trainer(strategy=strategy, **checks)
    if phase == "training":
        one.fit(Net(), bad, good)
    elif phase in ("sanity check", "validation"):
        one.fit(Net(), good, bad)
    elif phase.endswith("dataloader"):
        one.fit(Makes())
    else:
        getattr(one, phase)(Net(), bad)


class At(Callback):
    """Does something at the end of a batch of rank 1."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == 1 and trainer.global_rank == 1:
            self.act()


def dies_in_first_save(rank: int, folder: Path) -> None:
    """Rank 0 is killed as it syncs the first file of a sharded folder, in the writer's thread."""
    if rank == 0:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    saver = ModelCheckpoint(folder / "saved", every_n_train_steps=1, async_save=True)
    strategy = FSDPStrategy(state_dict_type="sharded")
    trainer(saver, strategy=strategy).fit(Net(), DataLoader(Samples(rank), 2))


def waits_for_rank_one(rank: int, folder: Path, *, vanishes: bool) -> None:
    """Rank 1 stops in a hook, with its connections open; alone, or its whole process."""
    # five and three seconds in earnest
    rank_watchdog._SIGNAL_S, rank_watchdog._NOTICE_S = 0.6, 0.2

    def stop() -> None:
        (folder / f"stopped {vanishes}").touch()
        if vanishes:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)

    trainer(At(stop)).fit(Net(), DataLoader(Samples(rank), 2))


def waits_in_the_set_up(folder: Path) -> None:
    """Rank 1 stays in its setup, and rank 0 waits for it where the module is placed."""

    class Sleeps(Callback):
        def setup(self, trainer, module, stage):
            if trainer.global_rank == 1:
                (folder / "stopped set-up").touch()
                time.sleep(60)

    rank_watchdog._NOTICE_S = 0.2
    trainer(Sleeps()).fit(Net(), DataLoader(Samples(0), 2))


def terminated(ranks: list[int], flag: Path, times: int) -> None:
    """Send SIGTERM to rank 0 when rank 1 has stopped; then end a stopped one."""
    while not flag.exists():
        time.sleep(0.02)  # what is waited for is another process: there is no event
    for _ in range(times):
        time.sleep(0.3)  # one after another, as a user or a scheduler sends them
        os.kill(ranks[0], signal.SIGTERM)
    os.waitid(os.P_PID, ranks[0], os.WEXITED | os.WNOWAIT)
    os.kill(ranks[1], signal.SIGCONT)


def takes_a_bad_checkpoint(rank: int, folder: Path) -> None:
    """Train with a loader that fails in rank 1 on the resume, before a batch was trained."""
    is_resumed = (folder / "again" / "last.ckpt").exists()

    class Stream(IterableDataset):
        def __iter__(self):
            if is_resumed and rank:
                raise ValueError("a bad stream of rank 1")
            return iter(torch.ones(4, 1))

    saver = ModelCheckpoint(folder / "again", every_n_train_steps=2, save_last=True)
    stop = {"max_steps": 2} if not is_resumed else {}
    trainer(saver, **stop).fit(Net(), DataLoader(Stream()), ckpt_path="auto")


def main(target: Path) -> None:
    folder = target.parent
    torch.set_num_threads(1)
    warm_up(folder)
    cases: dict[str, tuple[Any, Any]] = {
        f"{phase} of {strategy}": (
            lambda rank, phase=phase, strategy=strategy: has_bad_sample(phase, rank, strategy),
            None,
        )
        for strategy in ("ddp", "fsdp")
        for phase in (PHASES if strategy == "ddp" else ("training", "validation"))
    }
    cases["dies in its first save"] = (lambda rank: dies_in_first_save(rank, folder), None)
    for vanishes, times in ((True, 1), (False, 2)):
        cases["vanishes" if vanishes else "sleeps"] = (
            lambda rank, vanishes=vanishes: waits_for_rank_one(rank, folder, vanishes=vanishes),
            lambda ranks, vanishes=vanishes, times=times: terminated(
                ranks, folder / f"stopped {vanishes}", times
            ),
        )
    cases["sleeps in its set-up"] = (
        lambda rank: waits_in_the_set_up(folder),
        lambda ranks: terminated(ranks, folder / "stopped set-up", 2),
    )
    for name in ("saves", "fails", "fails again"):
        cases[name] = (lambda rank: takes_a_bad_checkpoint(rank, folder), None)
    found = {}
    for name, (run, during) in cases.items():
        output = folder / f"{name}.txt"
        codes = fork_ranks(run, output, notice=30, during=during)
        found[name] = [codes, output.read_text()]
    target.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
