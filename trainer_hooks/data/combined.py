"""CombinedLoader: several loaders as one."""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.data.nesting import leaves, mapped
from trainer_hooks.data.sizes import number_of_batches
from trainer_hooks.data.workers import iterator_of
from trainer_hooks.errors import DataError
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["CombinedLoader"]

_END = object()
_MAX_SEED = 2**32
_MODES = ("max_size_cycle", "min_size", "max_size", "sequential")


class CombinedLoader:
    """Take one batch of each of several loaders at a time, or go through one after another.

    Args:
        iterables: a list or dict of loaders, or of such lists and dicts; a batch is then a list or
            dict of their batches, nested alike.
        mode: what happens when a loader ends: `"min_size"` ends with the shortest,
            `"max_size_cycle"` starts it again until the longest has ended, `"max_size"` gives None
            in its place. `"sequential"` takes one loader after another, and a batch of one at a
            time.
    """

    def __init__(
        self, iterables: Sequence[Any] | Mapping[Any, Any], mode: str = "min_size"
    ) -> None:
        if mode not in _MODES:
            raise DataError(f"CombinedLoader(mode={mode!r}): must be one of {', '.join(_MODES)}.")
        if not iterables:
            raise DataError("CombinedLoader was given no loader: it needs at least one.")
        self.loaders = iterables  # by this name checkpoints find the generators in it
        self.mode = mode

    @property
    def iterables(self) -> Any:
        """The loaders as they were given."""
        return self.loaders

    @property
    def flattened(self) -> list[Any]:
        """The loaders in a list."""
        return list(leaves(self.loaders))

    def mapped(self, change: Callable[[Any], Any]) -> CombinedLoader:
        """Return one of the same shape and mode, with `change` of each loader in its place."""
        return CombinedLoader(mapped(self.loaders, change), self.mode)

    def __len__(self) -> int:
        sizes = [number_of_batches(loader) for loader in self.flattened]
        if self.mode == "sequential":
            size = sum(sizes)
        else:
            size = min(sizes) if self.mode == "min_size" else max(sizes)
        if size == math.inf:
            raise TypeError("a combined loader has no length where one of its loaders has none")
        return int(size)

    def __iter__(self) -> Iterator[Any]:
        return self._one_by_one() if self.mode == "sequential" else self._together()

    def _one_by_one(self) -> Iterator[Any]:
        """Give the batches of one loader after another; workers of the next start when it begins.

        That draws from random numbers of its own, as in a loader that starts again.
        """
        seed = int(torch.randint(_MAX_SEED, ()))
        for position, loader in enumerate(self.flattened):
            if position == 0:
                yield from iterator_of(loader)
            else:
                with rng.OwnNumbers((seed + position) % _MAX_SEED):
                    iterator = iterator_of(loader)
                    first = next(iterator, _END)
                if first is not _END:
                    yield first
                    yield from iterator

    def _together(self) -> Iterator[Any]:
        loaders = self.flattened
        iterators = [iterator_of(loader) for loader in loaders]
        numbers = count()
        places = mapped(self.loaders, lambda _: next(numbers))
        ended = [False] * len(iterators)
        # a loader that starts again must not draw from the run's random numbers: how far those are
        # by then depends on the training, and a resume could not find its order again
        seed = int(torch.randint(_MAX_SEED, ())) if self.mode == "max_size_cycle" else 0
        while True:
            batches: list[Any] = []
            for position, loader in enumerate(loaders):
                batch = next(iterators[position], _END)
                if batch is _END:
                    ended[position] = True
                    if self.mode == "min_size" or all(ended):
                        return
                    batch = None
                    if self.mode == "max_size_cycle":
                        seed = (seed + 1) % _MAX_SEED
                        with rng.OwnNumbers(seed):
                            iterators[position] = iterator_of(loader)
                            batch = next(iterators[position], _END)
                        if batch is _END:
                            raise DataError(
                                f"loader {loader!r} of a CombinedLoader gives no batch: it cannot "
                                "be repeated until the longest has ended. Leave it out, or give a "
                                "loader that can be iterated more than once."
                            )
                batches.append(batch)
            yield _put(batches, places)


def _put(batches: list[Any], places: Any) -> Any:
    """Return the batches in the lists and dicts that hold their numbers."""
    if isinstance(places, int):
        return batches[places]
    if isinstance(places, dict):
        return {name: _put(batches, place) for name, place in places.items()}
    return [_put(batches, place) for place in places]
