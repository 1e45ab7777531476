"""Kill a training at each call that changes a folder, and compare what the resumed one leaves.

    python killed_saves.py FOLDER CASES

CASES is a JSON list of `{"savers": [options], "module": options, "kills": count, "seed": number}`.
One process imports torch and forks a child for each run: one that nothing interrupts, then for
each kill one that is killed as it is about to sync, move, link or delete a file, and one that goes
on with `ckpt_path="auto"`. For each case one JSON list is printed, of the differences from the
uncut run's folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

from trainer_hooks import Callback, Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.hooks.band import Band

BATCHES = [torch.full((2, 2), float(number)) for number in range(3)]
CHANGES = ("fsync", "replace", "rename", "link", "symlink", "unlink")


class Net(Module):
    """One layer with dropout, and a score that goes up and down."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = torch.dropout(self.layer(batch), 0.3, True).square().mean()
        self.log("score", float((7 * self.trainer.global_step) % 5))
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Requests(Callback):
    """Requests a checkpoint after some batches."""

    def __init__(self, at: list[int]) -> None:
        self.at = at

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed in self.at:
            trainer.request_checkpoint()


class Looks(Callback):
    """Looks at the files called last as soon as the run has restored a checkpoint."""

    band = Band.SAVE

    def on_train_start(self, trainer, module):
        for saver in trainer.checkpoint_callbacks:
            folder = Path(saver.dirpath)
            newest = max(
                (summarize(path).saved_at for path in map(str, folder.glob("*=*.ckpt"))), default=0
            )
            for last in folder.glob("last*.ckpt"):
                assert last.exists(), f"{last} leads nowhere"
                # a slot that is finished only later renews that of a saver that is still to save
                age = summarize(str(last)).saved_at
                assert age >= newest or len(trainer.checkpoint_callbacks) > 1, f"{last} is old"


def train(case: dict[str, Any]) -> None:
    seed_everything(3)
    savers = [ModelCheckpoint(**options) for options in case["savers"]]
    for saver in savers:
        saver.CHECKPOINT_NAME_LAST = case.get("last", "last")
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[Requests(case.get("requests", [])), *savers, Looks()],
        logger=False,
        plugins=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=case.get("val_check_interval", 1.0),
    )
    trainer.fit(Net(), BATCHES, BATCHES[:1], ckpt_path="auto")


def count_changes(kill_at: int | None) -> list[int]:
    """Count the calls that change a folder from here on; kill the process before one of them."""
    calls = [0]

    def counted(change):
        def call(*args, **kwargs):
            calls[0] += 1
            if calls[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # another thread may come to this
            return change(*args, **kwargs)

        return call

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))
    return calls


def fork_run(folder: Path, case: dict[str, Any], kill_at: int | None = None) -> tuple[int, str]:
    """Train in a forked child; return its status, and the number of changes or its error."""
    folder.mkdir(exist_ok=True)
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(receiving)
            for stream in (1, 2):  # what a run says of its resume is not told
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            os.chdir(folder)
            calls = count_changes(kill_at)
            train(case)
            os.write(sending, str(calls[0]).encode())
            code = 0
        except BaseException:
            os.write(sending, traceback.format_exc()[-1500:].encode())
        finally:
            os._exit(code)
    os.close(sending)
    told = b""
    while chunk := os.read(receiving, 65536):
        told += chunk
    os.close(receiving)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told.decode()


def digest(value: Any, folder: str) -> str:
    """Return a text that is equal for equal contents; paths are those in the run's folder."""
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.numpy().tobytes()).hexdigest()[:8] + str(tuple(value.shape))
    if isinstance(value, dict):
        return str({k: digest(v, folder) for k, v in value.items()}).replace(folder, ".")
    if isinstance(value, list | tuple):
        return str([digest(item, folder) for item in value])
    return repr(value).replace(folder, ".")


def contents(folder: Path) -> dict[str, Any]:
    """Return all files of a folder, the hidden ones too: the targets of links, or the contents."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif name.rpartition("/")[2].startswith("."):
            found[name] = "hidden"
        elif path.is_file():
            checkpoint = torch.load(path, weights_only=True)
            own = checkpoint.pop("trainer_hooks")
            own.pop("wall_times", None)  # weights alone have none
            parts = {**checkpoint, **own}
            found[name] = {k: digest(v, str(folder.resolve())) for k, v in parts.items()}
    return found


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    told = [f"missing {name}" for name in expected.keys() - found.keys()]
    told += [f"too many {name}" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        one, other = expected[name], found[name]
        if isinstance(one, dict) and isinstance(other, dict):
            told += [
                f"{name}: {key}: {one.get(key)} / {other.get(key)}"
                for key in one.keys() | other.keys()
                if one.get(key) != other.get(key)
            ]
        elif one != other:
            told.append(f"{name}: {one} / {other}")
    return sorted(told)


def kill_and_compare(folder: Path, case: dict[str, Any]) -> list[str]:
    """Return how the folders of killed and resumed runs differ from that of the uncut run."""
    folder.mkdir()
    status, told = fork_run(folder / "uncut", case)
    if status:
        return [f"uncut: {told}"]
    expected, changes = contents(folder / "uncut"), int(told)
    moments = list(range(1, changes + 1))
    if case.get("kills"):
        moments = sorted(random.Random(case["seed"]).sample(moments, min(case["kills"], changes)))
    problems = []
    for moment in moments:
        own = folder / str(moment)
        status, told = fork_run(own, case, moment)
        # with a thread that writes, the order of two changes is not always the same
        if status != -signal.SIGKILL and not case.get("is_async"):
            problems.append(f"kill {moment} of {changes}: status {status}: {told}")
        before = sorted(str(p.relative_to(own)) for p in own.rglob("*") if not p.is_dir())
        status, told = fork_run(own, case)
        if status:
            problems.append(f"resume {moment} of {changes} {before}: {told}")
            continue
        problems += [
            f"kill {moment} of {changes} {before}: {each}"
            for each in differences(expected, contents(own))
        ]
    return problems


def warm_up(folder: Path) -> None:
    """Load what a training needs, so that the children need not."""
    folder.mkdir(parents=True)
    saver = {"dirpath": str(folder), "monitor": "val_loss"}
    for is_async in (False, True):
        train({"savers": [{**saver, "save_last": True, "async_save": is_async}]})


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "(fit|Run) has nothing to do")  # killed after the last save
    folder = Path(sys.argv[1])
    warm_up(folder / "warm")
    for number, case in enumerate(json.loads(sys.argv[2])):
        print(json.dumps(kill_and_compare(folder / str(number), case)), flush=True)


if __name__ == "__main__":
    main()
