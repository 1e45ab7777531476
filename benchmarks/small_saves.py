"""What a checkpoint of a small model costs over `torch.save` and `fsync` of the same content.

An MLP (32 -> 64 -> 2) with Adam, a shuffled loader, a logged loss and the default callbacks. Inside
a fit, after each of 200 batches, the trainer saves a checkpoint, and then torch saves what that one
holds. Of each process the median of both counts; the table has the median over the processes. The
trainer syncs the file and its folder, and seals it.

Then what such saves after every step cost a training whose step takes 5 ms, at once and in the
background: fits with and without them take turns, and the table has the ratios of their times. One
fit saves by hand in the background: it copies weights and optimizer states alone, and a thread
writes them with `torch.save`, syncs the file and renames it.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from _harness import run_child, table

SAVES = 200
STEPS = 100
STEP_MS = 5.0
TARGET_MS = 2.0
TARGET_RATIO = 1.1


def timed(do: Any) -> float:
    """Return the milliseconds that a call takes."""
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1e3


def make_net() -> Any:
    """Return a module of 2,242 parameters."""
    import torch

    from trainer_hooks import Module

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
            )

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            loss = self.layers(batch).square().mean()
            self.log("loss", loss, on_epoch=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    return Net()


def fit(folder: Path, batches: Any, callback: Any, **options: Any) -> None:
    """Train for one epoch with a callback beside the default ones."""
    from trainer_hooks import Trainer

    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callback,
        default_root_dir=folder,
        **options,
    )
    trainer.fit(make_net(), batches)


def measure_saves(folder: Path) -> dict[str, float]:
    """Return the median milliseconds of a save by the trainer and by torch, and the file's size."""
    import torch

    from trainer_hooks import Callback

    ours, plain = folder / "ours.ckpt", folder / "plain.ckpt"
    found: dict[str, list[float]] = {"ours": [], "torch": []}
    # not in the callback: the trainer would look for random generators in it
    held: dict[str, Any] = {}

    def save_plain() -> None:
        with plain.open("wb") as file:
            torch.save(held["content"], file)
            file.flush()
            os.fsync(file.fileno())

    class Saves(Callback):
        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            span = timed(lambda: trainer.save_checkpoint(ours))
            held.setdefault("content", torch.load(ours, weights_only=False))
            found["ours"].append(span)
            found["torch"].append(timed(save_plain))

    batches = torch.utils.data.DataLoader(torch.ones(8 * SAVES, 32), batch_size=8, shuffle=True)
    fit(folder, batches, Saves())
    medians = {name: statistics.median(spans) for name, spans in found.items()}
    return {**medians, "bytes": ours.stat().st_size}


def saver_by_hand(folder: Path) -> Any:
    """Return a callback that saves weights and optimizer states after each batch, in a thread."""
    import torch

    from trainer_hooks import Callback

    def write(held: Any) -> None:
        with (folder / "part").open("wb") as file:
            torch.save(held, file)
            file.flush()
            os.fsync(file.fileno())
        (folder / "part").replace(folder / "by-hand.ckpt")

    class ByHand(Callback):
        thread: Any = None

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            self.finish()
            (optimizer,) = trainer.optimizers
            held = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
            self.thread = threading.Thread(target=write, args=(held,))
            self.thread.start()

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.finish()

        def finish(self) -> None:
            if self.thread is not None:
                self.thread.join()

    return ByHand()


def measure_steps(folder: Path) -> dict[str, float]:
    """Return the milliseconds of a step without saves, and the ratios with one after each step."""
    import torch

    from trainer_hooks import Callback
    from trainer_hooks.callbacks import ModelCheckpoint

    class Clock(Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.began = time.perf_counter()

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.ms = (time.perf_counter() - self.began) * 1e3 / trainer.global_step

    def step_ms(rows: int, *savers: Any) -> float:
        clock = Clock()
        batches = [torch.ones(rows, 32)] * STEPS
        has_checkpoints = any(isinstance(saver, ModelCheckpoint) for saver in savers)
        # the clock last: the thread of the last save ends before it stops
        fit(folder, batches, [*savers, clock], enable_checkpointing=has_checkpoints)
        return clock.ms

    def saver(in_background: bool) -> ModelCheckpoint:
        return ModelCheckpoint(folder / "saved", every_n_train_steps=1, async_save=in_background)

    rows = 8192
    for _ in range(3):  # the first fit is slow
        rows = round(rows * STEP_MS / step_ms(rows))
    ways = {
        "at once": lambda: saver(False),
        "in the background": lambda: saver(True),
        "by hand in the background": lambda: saver_by_hand(folder),
    }
    plain: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(5):
        plain.append(step_ms(rows))
        for name, make in ways.items():
            ratios[name].append(step_ms(rows, make()) / plain[-1])
    medians = {name: statistics.median(found) for name, found in ratios.items()}
    return {"step": statistics.median(plain), **medians}


def measure(folder: Path) -> dict[str, float]:
    """Return the figures of one process."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    return measure_saves(folder) | measure_steps(folder)


def rows_of(figures: dict[str, list[float]]) -> list[list[str]]:
    """Return a row for each name: the median and the least of its figures."""
    return [
        [name, f"{statistics.median(found):.2f}", f"{min(found):.2f}"]
        for name, found in figures.items()
    ]


def main(argv: list[str] | None = None) -> int:
    """Measure in fresh processes, print, and return 1 only if `--check` found the target missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="processes")
    parser.add_argument("--dir", type=Path, help="the folder to write to; a temporary one if none")
    parser.add_argument(
        "--check", action="store_true", help=f"exit 1 over {TARGET_MS:g} ms or {TARGET_RATIO:g}"
    )
    arguments = parser.parse_args(argv)
    command = [sys.executable, __file__, "--child", str(arguments.dir or "")]
    rounds = [run_child(command, hash_seed=number) for number in range(arguments.rounds)]
    over = [found["ours"] - found["torch"] for found in rounds]
    spans = {
        "torch.save and fsync": [found["torch"] for found in rounds],
        "trainer.save_checkpoint": [found["ours"] for found in rounds],
        "the difference": over,
    }
    print(table([f"of {rounds[0]['bytes'] / 1000:.0f} KB", "ms", "least"], rows_of(spans)))
    ways = "at once", "in the background", "by hand in the background"
    ratios = {name: [found[name] for found in rounds] for name in ways}
    step = statistics.median(found["step"] for found in rounds)
    print(table([f"after each step of {step:.1f} ms", "ratio", "least"], rows_of(ratios)))
    is_missed = (
        statistics.median(over) > TARGET_MS
        or statistics.median(ratios["in the background"]) > TARGET_RATIO
    )
    return int(arguments.check and is_missed)


def child(place: str, result: str) -> None:
    """Measure once and write the figures to a file."""
    import json

    with tempfile.TemporaryDirectory(prefix="bench-", dir=place or None) as folder:
        Path(result).write_text(json.dumps(measure(Path(folder))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:4])
    else:
        sys.exit(main())
