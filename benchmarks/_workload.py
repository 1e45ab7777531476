"""The one workload that every contestant trains, and the data that times it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BATCH_SIZE",
    "LOG_EVERY",
    "METRICS",
    "STEPS_PER_EPOCH",
    "TimedBatches",
    "make_batches",
    "make_model",
    "make_optimizer",
]

STEPS_PER_EPOCH = 1000
BATCH_SIZE = 8
LOG_EVERY = 50
METRICS = ("loss", "loss_again", "loss_thrice")
"""What the `usual` case logs: the loss under three names, so that computing it costs nothing."""

_FEATURES, _HIDDEN, _CLASSES = 32, 64, 2


class TimedBatches:
    """Batches in memory that note the clocks whenever a pass over them takes its first one.

    The notes are all that is measured: no contestant needs a hook or a callback for it. Making an
    iterator is free of effects, since some trainers make one only to look whether they can.
    """

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches
        self.marks: list[tuple[float, float]] = []
        """Wall clock and CPU time of the process, in seconds, at each pass's first batch."""

    def __len__(self) -> int:
        """Return the number of batches in a pass."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches."""
        self.marks.append((time.perf_counter(), time.process_time()))
        yield from self.batches


def make_batches(count: int = STEPS_PER_EPOCH) -> TimedBatches:
    """Return `count` batches of float features (8, 32) and integer classes (8,)."""
    source = torch.Generator().manual_seed(1)
    direction = torch.randn(_FEATURES, generator=source)
    batches = []
    for _ in range(count):
        x = torch.randn(BATCH_SIZE, _FEATURES, generator=source)
        batches.append((x, (x @ direction > 0).long()))
    return TimedBatches(batches)


def make_model() -> nn.Sequential:
    """Return the two-layer MLP, with the same weights every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(_FEATURES, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _CLASSES))


def make_optimizer(model: nn.Module) -> torch.optim.SGD:
    """Return plain SGD over the model."""
    return torch.optim.SGD(model.parameters(), lr=0.01)
