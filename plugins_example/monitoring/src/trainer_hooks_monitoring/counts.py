"""Counts: how much a model has been trained, over all the runs that it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["Counts", "samples_in"]


@dataclass(slots=True)
class Counts:
    """What the event log counts.

    Attributes:
        batches: training batches.
        samples: the samples in them.
        epochs: training epochs that ended.
        fits: calls of `fit`, resumed ones included.
        resumes: how many of those went on from a checkpoint.
    """

    batches: int = 0
    samples: int = 0
    epochs: int = 0
    fits: int = 0
    resumes: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, counts: Mapping[str, int]) -> Counts:
        """Return counts that were saved; one that an older release did not know is zero."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: count for name, count in counts.items() if name in known})


def samples_in(batch: Any) -> int:
    """Return the length of the first tensor in `batch`, or 0 if there is none.

    A tensor is anything with a `shape` of one dimension or more; lists, tuples and mappings are
    searched in their order, however they are nested.
    """
    return next(_lengths(batch), 0)


def _lengths(batch: Any) -> Iterator[int]:
    shape = getattr(batch, "shape", None)
    if shape is not None:
        if len(shape) > 0:
            yield int(shape[0])
    elif isinstance(batch, Mapping):
        for item in batch.values():
            yield from _lengths(item)
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from _lengths(item)
