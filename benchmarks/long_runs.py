"""What grows in a long run: a million steps, 2,000 fits in a process, and a folder of checkpoints.

Each case runs in a fresh process, which notes its memory, open files, threads and Python objects
twenty times. The growth is that over the last half, when caches are full: the difference of the
medians of the two last quarters, taken as what twice as many steps or fits would add.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from _harness import run_child, table

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint

_SAMPLES = 20
_LIMITS = {"KB": 2048, "files": 0, "threads": 0, "objects": 2000}
"""The growth over half a run that counts as none."""

_FOLDER_SECONDS = 1.0
"""In which the newest checkpoint of a folder has to be known."""


class _Smallest(Module):
    """One weight, one logged value a step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True, batch_size=1)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def _measure() -> dict[str, int]:
    """Return the memory in KB, and the numbers of open files, threads and tracked objects."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "KB": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "objects": len(gc.get_objects()),
    }


class _Sampler(Callback):
    """Measure the process every so many batches."""

    def __init__(self, every: int, samples: list[dict[str, int]]) -> None:
        self.every, self.samples = every, samples

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.progress.batches_completed % self.every == 0:
            self.samples.append(_measure())


def _quiet(**options: Any) -> Trainer:
    return Trainer(
        accelerator="cpu", enable_model_summary=False, plugins=False, num_sanity_val_steps=0,
        default_root_dir=Path.cwd(), **options,
    )  # fmt: skip


def _steps(count: int) -> list[dict[str, int]]:
    """Train that many steps, with the bar, the logger and a checkpoint each epoch."""
    samples: list[dict[str, int]] = []
    batches = [torch.ones(1, 1)] * 10_000
    _quiet(max_epochs=-1, max_steps=count, callbacks=[_Sampler(count // _SAMPLES, samples)]).fit(
        _Smallest(), batches
    )
    return samples


def _fits(count: int) -> list[dict[str, int]]:
    """Make that many trainers, each with a fit of two batches."""
    samples = []
    for number in range(1, count + 1):
        _quiet(max_epochs=1, enable_progress_bar=False).fit(_Smallest(), [torch.ones(1, 1)] * 2)
        if number % (count // _SAMPLES) == 0:
            samples.append(_measure())
    return samples


def _folder(count: int) -> float:
    """Return the seconds in which a fit finds the newest of that many checkpoints and starts."""
    saver = ModelCheckpoint("saved", save_top_k=-1)
    _quiet(max_epochs=1, callbacks=[saver], enable_progress_bar=False).fit(
        _Smallest(), [torch.ones(1, 1)] * 2
    )
    (first,) = Path("saved").iterdir()
    for number in range(1, count):
        shutil.copy(first, first.with_name(f"copy-{number}.ckpt"))
    seconds = []
    for folder in ("one", "saved") * 3:
        if folder == "one":
            Path("one").mkdir(exist_ok=True)
            shutil.copy(first, Path("one", first.name))
        saver = ModelCheckpoint(folder, save_top_k=-1)
        trainer = _quiet(max_epochs=1, callbacks=[saver], enable_progress_bar=False)
        began = time.perf_counter()
        trainer.fit(_Smallest(), [torch.ones(1, 1)] * 2, ckpt_path="last")
        seconds.append(time.perf_counter() - began)
    return min(seconds[1::2]) - min(seconds[::2])


def growth(samples: list[dict[str, int]]) -> dict[str, float]:
    """Return by how much each number grows over half of the samples, by their last half."""
    last = samples[len(samples) // 2 :]
    third, fourth = last[: len(last) // 2], last[len(last) // 2 :]
    return {
        name: 2 * (statistics.median(s[name] for s in fourth)
                   - statistics.median(s[name] for s in third))
        for name in _LIMITS
    }  # fmt: skip


def main() -> int:
    """Run the cases and print what grew; with --check return 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--fits", type=int, default=2_000)
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--check", action="store_true", help="exit with 1 if anything grows")
    given = parser.parse_args()
    rows, is_bad = [], False
    for case, count in (("steps", given.steps), ("fits", given.fits)):
        command = [sys.executable, __file__, "--case", case, str(count)]
        grown = growth(run_child(command, timeout_s=7200)["samples"])
        is_bad |= any(grown[name] > limit for name, limit in _LIMITS.items())
        rows.append([f"{count:,} {case}", *(f"{grown[name]:+,.0f}" for name in _LIMITS)])
    print(table(["growth over half of", *_LIMITS], rows))
    command = [sys.executable, __file__, "--case", "folder", str(given.checkpoints)]
    seconds = run_child(command, timeout_s=1200)["seconds"]
    is_bad |= seconds > _FOLDER_SECONDS
    print(f"\nthe newest of {given.checkpoints:,} checkpoints is known in {seconds:.2f} s")
    return int(is_bad and given.check)


def _run_case(case: str, count: int, target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if case == "folder":
            result: dict[str, Any] = {"seconds": _folder(count)}
        else:
            result = {"samples": {"steps": _steps, "fits": _fits}[case](count)}
        os.chdir("/")
    Path(target).write_text(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        _run_case(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        raise SystemExit(main())
