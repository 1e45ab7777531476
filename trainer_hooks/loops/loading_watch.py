"""Whether a training waits for its loader, measured over a few batches of the first epoch."""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.data import shown
from trainer_hooks.errors import TrainerHooksAdvice
from trainer_hooks.runtime import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["usable_cpus", "watched"]

_SKIPPED = 3
"""Batches that are not measured: workers start, and caches fill."""
_MEASURED = 20
_SHARE = 0.5
_LEAST_SECONDS = 1.0
"""What is over sooner is not worth a word."""


def watched(iterator: Iterator[Any], loader: Any, device: torch.device) -> Iterator[Any]:
    """Return the same batches; the first are timed, and all others come as they are.

    Args:
        iterator: the batches of an epoch.
        loader: what they come from: a DataLoader with fewer workers than there are CPUs.
        device: what works on them.
    """
    # not the loader itself, which ends with the run even if somebody keeps an error's frames
    return chain(_timed(iterator, shown(loader), loader.num_workers, device), iterator)


def _timed(
    iterator: Iterator[Any], loader: str, workers: int, device: torch.device
) -> Iterator[Any]:
    waited, began = 0.0, 0.0
    for number in range(_SKIPPED + _MEASURED):
        if number == _SKIPPED:
            waited, began = 0.0, time.perf_counter()
        before = time.perf_counter()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        waited += time.perf_counter() - before
        yield batch
    if device.type == "cuda":  # once: it works on behind the steps that were asked of it
        torch.cuda.synchronize(device)
    passed = time.perf_counter() - began
    if passed >= _LEAST_SECONDS and waited > _SHARE * passed:
        most = max(usable_cpus() - 1, 1)
        warn(
            f"the training waits for its loader {waited / passed:.0%} of the time, as measured "
            f"over {_MEASURED} batches: {loader} has num_workers={workers}. Try more, up to "
            f"{most} on this machine, or load less for each sample.",
            TrainerHooksAdvice,
        )
