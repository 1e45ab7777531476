"""The loop as one writes it oneself: what every trainer is measured against."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING

import torch
from _workload import LOG_EVERY, METRICS, TimedBatches, make_model, make_optimizer
from torch.nn import functional as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

__all__ = ["bare", "usual"]


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


def usual(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train with epoch means, a bar, a CSV file with the rate, early stopping and checkpoints."""
    from tqdm import tqdm

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
            bar = tqdm(batches, desc=f"Epoch {epoch}", leave=False)
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
