"""Draw trainings of several ranks, cut each several times in a row, and resume it each time.

    python tests/distributed/random_chains.py --seeds 0:300 [--seconds 600] [--ranks 8]

Each cut is a SIGKILL of one rank or all, a signal, an exception in a hook, or a SIGKILL at some
call that changes the disk. Each stage resumes with `ckpt_path="auto"` and other random seeds. The
end must be that of the run that nobody cut: weights, optimizers, callback states, history and
random numbers of all ranks, rows of metrics.csv, names and contents of the checkpoints.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from forked_ranks import fork_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from trainer_hooks import Callback, DDPStrategy, FSDPStrategy, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.loggers import CSVLogger

Options = dict[str, Any]
Cut = dict[str, Any]

SPACE: dict[str, list[Any]] = {
    "strategy": ["ddp", "fsdp", "fsdp folders"],
    "data": ["shared", "known", "stream"],
    "uneven": [False, True],
    "async_save": [False, True],
    "accumulate": [1, 2],
    "validates": [True, False],
    "every_n_train_steps": [1, 2, 3, 0],
    "save_top_k": [1, -1, 2],
    "save_last": [False, True, "link"],
    "monitor": [None, "val_loss"],
    "norm": [False, True],
    "scheduler": [False, True],
    "log_every_n_steps": [1, 2],
    "epochs": [2, 3],
    "stopping_rank": [None, 0, 1],
    "ranks": [2, 3, 4, 5],
    "variant": [None, "views", "static", "half", "buckets"],
}
DDP_OPTIONS: dict[str | None, Options] = {
    None: {},
    "views": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "half": {"ddp_comm_hook": default_hooks.fp16_compress_hook},
    "buckets": {"bucket_cap_mb": 1e-5},
}
"""Options of a DDPStrategy by the name of the variant; without a meaning for weights in shards."""

WAYS = ("kill", "kill", "SIGTERM", "SIGUSR1", "SIGINT", "error", "disk", "disk")
DISK = ("fsync", "replace", "rename", "link", "symlink", "unlink")
FIRST_TOGETHER = 3
"""The number of the first hook, `setup`, at which the ranks have met.

Torch lets a rank wait half an hour for one that was killed before.
"""
SEED = 5
"""The random seed of a stage that finds no checkpoint, as of the uncut run."""


# --- a training ---

torch.manual_seed(7)
DATA = TensorDataset(torch.randn(96, 3), torch.randn(96, 1))
"""Twelve samples for each of up to eight ranks."""


class Net(Module):
    """Draws random numbers in its steps, and logs."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        norm = [nn.BatchNorm1d(4)] if options["norm"] else []
        self.net = nn.Sequential(nn.Linear(3, 4), *norm, nn.Dropout(0.3), nn.Linear(4, 1))

    def error(self, batch: Any) -> torch.Tensor:
        return (self.net(batch[0]) - batch[1]).square().mean()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.error(batch)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        self.log("drawn", torch.rand(()) + random.random() + np.random.rand(), sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.error(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        if not self.options["scheduler"]:
            return optimizer
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


class Remembers(Callback):
    """Has a state of its own in each rank."""

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.drawn.append(torch.rand(()).item() + outputs["loss"].item())

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": list(self.drawn)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = list(state["drawn"])


class Stops(Callback):
    """Requests a stop in one rank, inside the second epoch, and keeps no state of it."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.global_rank == self.rank and trainer.progress.batches_completed == 5:
            trainer.stop("enough")


class Stream(IterableDataset):
    """A number of samples, to which it adds random numbers; without a length."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count

    def __iter__(self):
        for number in range(self.first, self.first + self.count):
            inputs, targets = DATA[number]
            yield inputs + torch.randn(3), targets


def loader(options: Options, rank: int) -> DataLoader:
    """Return a rank's training loader."""
    if options["data"] == "shared":
        return DataLoader(Subset(DATA, range(12 * options["ranks"])), 3, shuffle=True)
    count = 11 if rank and options["uneven"] else 8
    if options["data"] == "known":
        return DataLoader(Subset(DATA, range(12 * rank, 12 * rank + count)), 2, shuffle=True)
    return DataLoader(Stream(12 * rank, count), 2)


def train(options: Options, folder: Path, rank: int, seed: int, cut: Cut | None) -> None:
    """Run one stage in one rank, which ends as it is cut, or leaves its end in the folder."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    cutter = Cutter(rank, cut)
    saver = ModelCheckpoint(
        folder / "checkpoints", save_top_k=options["save_top_k"], save_last=options["save_last"],
        every_n_train_steps=options["every_n_train_steps"] or None, monitor=options["monitor"],
        async_save=options["async_save"],
    )  # fmt: skip
    strategy: Any = options["strategy"]
    if strategy.startswith("fsdp"):
        kind = "sharded" if strategy == "fsdp folders" else "full"
        strategy = FSDPStrategy(auto_wrap_policy=nn.Linear, state_dict_type=kind)
    else:
        strategy = DDPStrategy(**DDP_OPTIONS[options["variant"]])
    module, remembers = Net(options), Remembers()
    trainer = Trainer(
        max_epochs=options["epochs"], accelerator="cpu", strategy=strategy, plugins=False,
        callbacks=[cutter, remembers, Stops(options["stopping_rank"]), saver],
        logger=CSVLogger(folder),
        log_every_n_steps=options["log_every_n_steps"], enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=options["accumulate"],
        use_distributed_sampler=options["data"] == "shared",
    )  # fmt: skip
    validation = DataLoader(Subset(DATA, range(5)), 2) if options["validates"] else None
    trainer.fit(module, loader(options, rank), validation, ckpt_path="auto")
    end = {
        "weights": _own(module.state_dict()),
        "optimizer": _own(trainer.optimizers[0].state_dict()),
        "remembers": remembers.drawn,
        "history": trainer.history.state_dict(),
        "random": [torch.get_rng_state(), random.getstate(), np.random.get_state()],
        "metrics": dict(trainer.callback_metrics),
        "progress": trainer.progress.state_dict(),
        "events": cutter.count,
        "log_dir": trainer.log_dir,
    }
    torch.save(end, folder / f"end{rank}.pt")


def _own(state: Any) -> Any:
    """Return a nested state with this rank's part of each tensor."""
    if isinstance(state, dict):
        return {key: _own(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [_own(value) for value in state]
    return state.to_local().clone() if hasattr(state, "to_local") else state


class Cutter(Callback):
    """Counts the calls of hooks, and cuts the run at one of them, or at a call to the disk."""

    def __init__(self, rank: int, cut: Cut | None) -> None:
        self.count, self.calls, self.rank, self.cut = 0, 0, rank, cut
        if cut is not None and cut["way"] == "disk" and rank == 0:
            for name in DISK:
                setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            assert self.cut is not None
            self.calls += 1
            is_due = self.calls == self.cut["at"]
            if is_due and self.cut["before"]:
                self._kill()
            result = call(*args, **options)
            if is_due:
                self._kill()
            return result

        return counted

    def _kill(self) -> None:
        assert self.cut is not None
        if self.cut["all"]:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def run_event(self, event: str, *args: Any) -> None:
        self.count += 1
        cut = self.cut
        if cut is None or cut["way"] == "disk" or self.count != cut["at"]:
            return
        if not cut["all"] and cut["rank"] != self.rank:
            return
        if cut["way"] == "kill":
            self._kill()
        elif cut["way"] == "error":
            raise ValueError(f"a cut in {event}")
        else:
            os.kill(os.getpid(), signal.Signals[cut["way"]])


# --- a chain of cuts ---


def draw(seed: int, ranks: int | None = None) -> tuple[Options, list[Cut]]:
    """Return the configuration of a seed, and its cuts; each option is the simplest in many.

    Args:
        seed: of the draw.
        ranks: number of ranks, in place of the drawn one.
    """
    chosen = random.Random(seed)
    options = {
        name: values[0] if chosen.random() < 0.4 else chosen.choice(values)
        for name, values in SPACE.items()
    }
    if ranks is not None:
        options["ranks"] = ranks
    # torch's reducer fails where the first backward of a static graph is not reduced
    if options["variant"] == "static":
        options["accumulate"] = 1
    if not options["validates"]:
        options["monitor"] = None
    if options["monitor"] is not None or not options["every_n_train_steps"]:
        options["every_n_train_steps"] = 0
    if options["monitor"] is None and options["save_top_k"] == 2:
        options["save_top_k"] = 1
    cuts = [
        {
            "way": chosen.choice(WAYS),
            "where": chosen.random(),
            "rank": chosen.randrange(options["ranks"]),
            "all": chosen.random() < 0.4,
            "before": chosen.random() < 0.5,
        }
        for _ in range(chosen.randint(1, 6))
    ]
    return options, cuts


def told(options: Options, cuts: list[Cut]) -> str:
    """Return a configuration in words: the options that are not the simplest, and the cuts."""
    changed = {name: value for name, value in options.items() if value != SPACE[name][0]}
    return f"{changed}, cuts: {[_told_cut(cut) for cut in cuts]}"


def _told_cut(cut: Cut) -> str:
    who = "all ranks" if cut["all"] else f"rank {0 if cut['way'] == 'disk' else cut['rank']}"
    return f"{cut['way']} of {who} at {cut.get('at', round(cut['where'], 2))}"


def examine(options: Options, cuts: list[Cut], folder: Path) -> list[str]:
    """Run a training uncut, and cut; return the differences at the end.

    Both use the same folder, since checkpoints hold paths.
    """
    place, kept = folder / "run", folder / "uncut"
    for one in (place, kept):
        shutil.rmtree(one, ignore_errors=True)
    place.mkdir(parents=True)
    codes, output = _stage(options, place, SEED, None)
    if any(codes):
        return [f"the uncut run ended with {codes}: {output[-3000:]}"]
    events = torch.load(place / "end0.pt", weights_only=False)["events"]
    expected = _end(place, options["ranks"])
    place.rename(kept)
    place.mkdir()
    for number, cut in enumerate([*cuts, None], 1):
        if cut is not None:
            # calls to the disk are about as many as a tenth of the hooks'
            cut["at"] = 1 + int(cut["where"] * events * (0.15 if cut["way"] == "disk" else 0.7))
            if cut["way"] != "disk":
                cut["at"] = max(cut["at"], FIRST_TOGETHER)
        has_checkpoint = any((place / "checkpoints").glob("[!.]*.ckpt"))
        seed = SEED + number * 100 if has_checkpoint else SEED
        codes, output = _stage(options, place, seed, cut)
        if not any(codes):
            break
        if 999 in codes:
            return [f"stage {number} hangs after {cut and _told_cut(cut)}: {output[-3000:]}"]
        if cut is None:
            return [f"the last stage ended with {codes}: {output[-4000:]}"]
    end = _end(place, options["ranks"])
    if any(cut["way"] in ("SIGTERM", "SIGUSR1") for cut in cuts):
        _forgive_signals(expected["files"], end["files"])
    return list(_differences("", expected, end))


def _forgive_signals(expected: dict[str, Any], files: dict[str, Any]) -> None:
    """Leave out what a signal saved after the uncut run's last save, as nothing replaces it."""
    newest = max(map(_batches, expected.values()), default=0)
    for name in list(files):
        is_preempted = name.startswith("preempted")
        if is_preempted and _batches(files[name]) >= newest:
            del files[name]
        elif name == "last.ckpt" and _batches(files[name]) >= _batches(expected.get(name, {})):
            expected[name] = files[name]


def _batches(content: dict[str, Any]) -> int:
    progress = content.get("trainer_hooks", {}).get("progress", {})
    return int(progress.get("batches_completed", 0))


def _stage(options: Options, folder: Path, seed: int, cut: Cut | None) -> tuple[list[int], str]:
    output = folder / "output.txt"
    output.unlink(missing_ok=True)
    run = lambda rank: train(options, folder, rank, seed + rank, cut)  # noqa: E731
    codes = fork_ranks(run, output, ranks=options["ranks"])
    return codes, output.read_text() if output.exists() else ""


def _end(folder: Path, ranks: int) -> dict[str, Any]:
    """Return the end of a training, without its wall times."""
    ends = [torch.load(folder / f"end{rank}.pt", weights_only=False) for rank in range(ranks)]
    log_dir = ends[0]["log_dir"]
    for end in ends:
        del end["events"], end["log_dir"]
    files = {}
    # hidden: the next save removes what a killed process has begun
    for path in sorted((folder / "checkpoints").glob("[!.]*")):
        content = load_checkpoint(str(path)) if path.suffix == ".ckpt" else {}
        own = content.get("trainer_hooks", {})
        own.pop("wall_times", None)
        for logger in own.get("loggers", ()):
            logger["state"].pop("version", None)
        for states in (content, *own.get("processes", ())):
            for key in [key for key in states.get("callbacks", {}) if "ModelCheckpoint" in key]:
                # a kill between a save and a deletion leaves one more file to be deleted
                states["callbacks"][key].pop("obsolete", None)
                if states is not content:
                    del states["callbacks"][key]
        files[path.name] = content
    with Path(log_dir, "metrics.csv").open() as rows:
        return {"ends": ends, "files": files, "rows": list(csv.reader(rows))}


def _differences(name: str, first: Any, second: Any) -> Any:
    """Yield the paths at which two nested values differ."""
    if isinstance(first, dict) and isinstance(second, dict):
        missing, more = first.keys() - second.keys(), second.keys() - first.keys()
        if missing or more:
            yield f"{name}: lacks {sorted(map(str, missing))}, has besides {sorted(map(str, more))}"
        for key in first.keys() & second.keys():
            yield from _differences(f"{name}/{key}", first[key], second[key])
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple):
        if len(first) != len(second):
            yield f"{name}: {len(second)} items in place of {len(first)}"
        for number, pair in enumerate(zip(first, second, strict=False)):
            yield from _differences(f"{name}/{number}", *pair)
    elif isinstance(first, torch.Tensor | np.ndarray):
        one, other = torch.as_tensor(first), torch.as_tensor(second)
        if one.shape != other.shape or not torch.equal(one.nan_to_num(), other.nan_to_num()):
            yield f"{name}: other numbers"
    elif _plain(first) != _plain(second):
        yield f"{name}: {second!r} in place of {first!r}"


def _plain(value: Any) -> str:
    # a training that was cut before its first checkpoint begins anew, in another run folder
    return re.sub(r"version_\d+", "version_N", repr(value))


def check(seed: int, folder: Path, *, shrinks: bool = True, ranks: int | None = None) -> str:
    """Examine the configuration of a seed; return how it differs, shrunk, or an empty text."""
    options, cuts = draw(seed, ranks)
    found = examine(options, cuts, folder)
    if not found:
        return ""
    if shrinks:
        options, cuts, found = _shrunk(options, cuts, found, folder)
    return "\n".join([f"seed {seed}: {told(options, cuts)}", *(f"    {one}" for one in found[:12])])


def _shrunk(options: Options, cuts: list[Cut], found: list[str], folder: Path) -> Any:
    """Leave out cuts and make options simple, one after another, as long as it still differs."""
    for cut in list(cuts):
        fewer = [one for one in cuts if one is not cut]
        if fewer and (less := examine(options, fewer, folder)):
            cuts, found = fewer, less
    for name, values in SPACE.items():
        # cuts name ranks
        if options[name] != values[0] and name != "ranks":
            simpler = {**options, name: values[0]}
            if less := examine(simpler, cuts, folder):
                options, found = simpler, less
    return options, cuts, found


def warm_up(folder: Path) -> None:
    """Import what trainings import as they go, so that no stage has to."""
    names = folder / "modules.txt"
    base = {name: values[0] for name, values in SPACE.items()}
    for strategy in ("ddp", "fsdp folders"):
        place = folder / f"warm {strategy}"
        place.mkdir()

        def target(rank: int, strategy: str = strategy, place: Path = place) -> None:
            train({**base, "strategy": strategy, "async_save": True}, place, rank, SEED, None)
            if rank == 0:
                with names.open("a") as file:
                    file.write("\n".join(sys.modules) + "\n")

        codes = fork_ranks(target, place / "output.txt")
        assert codes == [0, 0], (place / "output.txt").read_text()
    for name in names.read_text().split():
        if name.startswith(("torch.", "trainer_hooks.")) and name not in sys.modules:
            try:
                __import__(name)
            except ImportError:
                continue  # a name that torch makes up as it runs


def main(arguments: list[str]) -> int:
    """Examine a range of seeds; return 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:300", help="first:last, without the last")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no seed after that time")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--ranks", type=int, help="of each training, up to 8; drawn by default")
    given = parser.parse_args(arguments)
    first, last = map(int, given.seeds.split(":"))
    torch.set_num_threads(1)
    begun, bad, done = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(prefix="random-chains-") as name:
        warm_up(Path(name))
        for seed in range(first, last):
            if time.monotonic() - begun > given.seconds:
                break
            shrinks = not given.no_shrink
            found = check(seed, Path(name, "chain"), shrinks=shrinks, ranks=given.ranks)
            done += 1
            bad += bool(found)
            if found:
                print(found, flush=True)
        print(f"{done} chains from {first} on, {bad} differ ({time.monotonic() - begun:.0f} s)")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
