"""What `self.log` costs: a step that logs 1, 10 or 100 names, less the same step without.

A training step does nothing but log; the loop around it is the trainer's. The runs of each number
of names are interleaved with runs that log nothing, and the figure is the difference of the
fastest epochs, by the number of calls.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import torch
from _harness import table

from trainer_hooks import Callback, Module, Trainer

COUNTS = (0, 1, 10, 100)
TARGET_US = 6.0
_STEPS = 500


class _Logging(Module):
    """Log one value under many names, as step values and epoch means."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.names = [f"name_{number}" for number in range(count)]

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch).mean()
        for name in self.names:
            self.log(name, loss, on_step=True, on_epoch=True, batch_size=8)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class _Clock(Callback):
    """Note how long the batches of each epoch take, without its end."""

    def __init__(self) -> None:
        self.spans: list[float] = []
        self._start = 0.0

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._start = time.perf_counter()

    def on_train_batches_end(self, trainer: Any, module: Any) -> None:
        self.spans.append(time.perf_counter() - self._start)


def fastest(count: int, epochs: int, folder: str) -> float:
    """Return the µs of a step that logs `count` names, in the fastest epoch."""
    clock = _Clock()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        callbacks=[clock],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(_Logging(count), [torch.ones(8, 4)] * _STEPS)
    return min(clock.spans) * 1e6 / _STEPS


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return 1 only if `--check` finds a call over the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=6, help="epochs a run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each number of names")
    parser.add_argument("--check", action="store_true", help="exit 1 unless the target is met")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    best = dict.fromkeys(COUNTS, float("inf"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for _ in range(arguments.rounds):
            for count in COUNTS:
                best[count] = min(best[count], fastest(count, arguments.epochs, folder))
    calls = {count: (best[count] - best[0]) / count for count in COUNTS if count}
    rows = [[str(count), f"{best[count]:.1f}", f"{us:.2f}"] for count, us in calls.items()]
    print(table(["names", "µs/step", "µs/call"], [["0", f"{best[0]:.1f}", ""], *rows]))
    return int(arguments.check and max(calls.values()) > TARGET_US)


if __name__ == "__main__":
    raise SystemExit(main())
