"""Sizes of loaders: count their batches, limit them, and report where there are too few."""

from __future__ import annotations

import math
from typing import Any

from trainer_hooks.data.showing import shown
from trainer_hooks.errors import DataError

__all__ = ["limited", "no_batch", "number_of_batches", "samples_of", "shortage"]


def number_of_batches(loader: Any) -> int | float:
    """Return how many batches a loader has, or infinity where it cannot say."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return math.inf


def samples_of(loader: Any, batches: int | float) -> tuple[int, int] | None:
    """Return how many samples a batch of a DataLoader has, and so many batches of it together.

    It is None where the loader does not say so, as with a batch sampler or an iterable.
    """
    size = getattr(loader, "batch_size", None)
    sampler = getattr(loader, "sampler", None)
    if not isinstance(size, int) or sampler is None or batches == math.inf:
        return None
    known = number_of_batches(sampler)  # a sampler is counted in samples
    return None if known == math.inf else (size, int(min(known, size * batches)))


def no_batch(what: str, loader: Any) -> str:
    """Return the message for a loader that gave nothing; `what` is how it is spoken of."""
    if hasattr(loader, "__next__"):
        return (
            f"{what} gave no batch: {shown(loader)} is an iterator, which can be gone through "
            "only once. Pass what begins anew each time, such as a DataLoader or a list."
        )
    return (
        f"{what} gave no batch: {shown(loader)} must give at least one each time it is iterated. "
        "Check the length of its data, and drop_last."
    )


def limited(size: int | float, limit: int | float, option: str) -> int | float:
    """Return how many of `size` batches a `limit_*_batches` option lets through.

    Raises:
        DataError: a fraction of an unknown number, or one that leaves not even one batch.
    """
    if isinstance(limit, int) or limit == 0.0:
        return min(size, int(limit))
    if limit == 1.0:
        return size
    if size == math.inf:
        raise DataError(
            f"Trainer({option}={limit!r}) asks for a fraction of a loader that has no length: give "
            f"a number of batches as an int, such as {option}=100, or give the loader a __len__."
        )
    count = int(size * limit)
    if count == 0 < size:
        raise DataError(
            f"Trainer({option}={limit!r}) leaves none of the {size} batches of a loader: a share "
            f"must leave at least one. Use {option}={1 / size:.2g} or more, or 1 for one batch."
        )
    return count


def shortage(loader: Any, kind: str, given: int) -> str:
    """Return how to report that a loader gave fewer batches than its length says."""
    return (
        f"the {kind} loader {shown(loader)} ended after {given} batches, but its length is "
        f"{number_of_batches(loader)}: a StopIteration that its data set raises ends it, too. Mend "
        "its __len__, or what it loads."
    )
