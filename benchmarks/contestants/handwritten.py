"""The loop as one writes it oneself: what every trainer is measured against."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Any

import torch
from _workload import LOG_EVERY, METRICS, TimedBatches, make_model, make_optimizer
from torch.nn import functional as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import nn

__all__ = ["bare", "rich", "usual"]


def bare(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train and do nothing else."""
    model = make_model()
    optimizer = make_optimizer(model)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    return model


class _RichBar:
    """What the loop below needs of a tqdm bar, drawn with rich."""

    mininterval = 0.1

    def __init__(self, batches: TimedBatches, desc: str, leave: bool) -> None:
        from rich.progress import Progress, TextColumn, TimeElapsedColumn

        self.batches, self.desc, self.loss = batches, desc, ""
        columns = (*Progress.get_default_columns(), TimeElapsedColumn())
        text = TextColumn("{task.completed}/{task.total} {task.fields[loss]}")
        self.progress = Progress(*columns, text, auto_refresh=False, transient=not leave)
        self.last_print_t = 0.0

    def set_postfix(self, loss: str, refresh: bool) -> None:
        self.loss = f"loss={loss}"

    def __iter__(self) -> Iterator[Any]:
        with self.progress as progress:
            task = progress.add_task(self.desc, total=len(self.batches), loss="")
            for count, batch in enumerate(self.batches, start=1):
                yield batch
                now = time.time()
                if now - self.last_print_t >= self.mininterval:
                    progress.update(task, completed=count, loss=self.loss, refresh=True)
                    self.last_print_t = now


def rich(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train as `usual` does, with a bar that rich draws."""
    return usual(batches, epochs, folder, _RichBar)


def usual(batches: TimedBatches, epochs: int, folder: Path, make_bar: Any = None) -> nn.Module:
    """Train with epoch means, a bar, a CSV file with the rate, early stopping and checkpoints."""
    from tqdm import tqdm

    make_bar = make_bar or tqdm
    model = make_model()
    optimizer = make_optimizer(model)
    step, best, bad_epochs, patience = 0, float("inf"), 0, 1000
    fields = ["step", "epoch", "lr", *METRICS, *(f"{name}_epoch" for name in METRICS)]
    with (folder / "metrics.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, fields)
        rows.writeheader()
        for epoch in range(epochs):
            sums = dict.fromkeys(METRICS, torch.zeros(()))
            sums = {name: zero.clone() for name, zero in sums.items()}
            bar = make_bar(batches, desc=f"Epoch {epoch}", leave=False)
            for x, y in bar:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                step += 1
                for name in METRICS:  # as if they were three: each is detached and added
                    sums[name] += loss.detach()
                if time.time() - bar.last_print_t >= bar.mininterval:
                    bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
                if step % LOG_EVERY == 0:
                    now = dict.fromkeys(METRICS, loss.item())
                    rate = optimizer.param_groups[0]["lr"]
                    rows.writerow({"step": step, "epoch": epoch, "lr": rate, **now})
            means = {f"{name}_epoch": (sums[name] / len(batches)).item() for name in METRICS}
            rows.writerow({"step": step, "epoch": epoch, **means})
            file.flush()
            bad_epochs = 0 if means["loss_epoch"] < best else bad_epochs + 1
            best = min(best, means["loss_epoch"])
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({"epoch": epoch, "step": step, **state}, folder / "last.pt")
            if bad_epochs >= patience:
                break
    return model
