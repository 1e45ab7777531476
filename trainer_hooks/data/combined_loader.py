"""CombinedLoader: several loaders as one."""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.data.loader_inspection import iterate_loaders, map_loaders, number_of_batches
from trainer_hooks.data.workers import reproducible_iterator
from trainer_hooks.errors import DataError
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["CombinedLoader"]

_END = object()
_MAX_SEED = 2**32
_MODES = ("max_size_cycle", "min_size", "max_size", "sequential")


class CombinedLoader:
    """Combine several loaders: a batch of each at a time, or one loader after another.

    Args:
        iterables: a list or dict of loaders, or nested ones; a batch is then a list or dict of
            their batches, nested alike.
        mode: `"min_size"` ends with the shortest loader, `"max_size_cycle"` restarts loaders until
            the longest has ended, `"max_size"` yields None for a loader that has ended.
            `"sequential"` iterates over one loader after another, with a batch of one at a time.
    """

    def __init__(
        self, iterables: Sequence[Any] | Mapping[Any, Any], mode: str = "min_size"
    ) -> None:
        if mode not in _MODES:
            raise DataError(f"CombinedLoader(mode={mode!r}): must be one of {', '.join(_MODES)}.")
        if not iterables:
            raise DataError("CombinedLoader was given no loader: it needs at least one.")
        # The attribute's name is part of the paths of generators in checkpoints: do not rename it.
        self.loaders = iterables
        self.mode = mode

    @property
    def iterables(self) -> Any:
        """The loaders as they were passed."""
        return self.loaders

    @property
    def flattened(self) -> list[Any]:
        """The loaders in a list."""
        return list(iterate_loaders(self.loaders))

    def mapped(self, convert_loader: Callable[[Any], Any]) -> CombinedLoader:
        """Return a CombinedLoader of the same nesting with each loader converted."""
        return CombinedLoader(map_loaders(self.loaders, convert_loader), self.mode)

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
        return (
            self._iterate_sequentially() if self.mode == "sequential" else self._iterate_together()
        )

    def _iterate_sequentially(self) -> Iterator[Any]:
        """Yield the batches of one loader after another; workers of the next start when it begins.

        Starting workers draws from a separate random state, as for a loader that restarts.
        """
        seed = int(torch.randint(_MAX_SEED, ()))
        for position, loader in enumerate(self.flattened):
            if position == 0:
                yield from reproducible_iterator(loader)
            else:
                with rng.SeparateRandomState((seed + position) % _MAX_SEED):
                    iterator = reproducible_iterator(loader)
                    first = next(iterator, _END)
                if first is not _END:
                    yield first
                    yield from iterator

    def _iterate_together(self) -> Iterator[Any]:
        """Yield a nested batch with one batch of each loader."""
        loaders = self.flattened
        iterators = [reproducible_iterator(loader) for loader in loaders]
        counter = count()
        positions = map_loaders(self.loaders, lambda _: next(counter))
        ended = [False] * len(iterators)
        # A loader that restarts must not draw from the run's random state: how far that has
        # advanced by then depends on the training, so a resume could not repeat the order.
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
                        with rng.SeparateRandomState(seed):
                            iterators[position] = reproducible_iterator(loader)
                            batch = next(iterators[position], _END)
                        if batch is _END:
                            raise DataError(
                                f"loader {loader!r} of a CombinedLoader gives no batch: it cannot "
                                "be repeated until the longest has ended. Leave it out, or give a "
                                "loader that can be iterated more than once."
                            )
                batches.append(batch)
            yield _nest_batches(batches, positions)


def _nest_batches(batches: list[Any], positions: Any) -> Any:
    """Return the batches in lists and dicts nested like `positions`, which holds their indices."""
    if isinstance(positions, int):
        return batches[positions]
    if isinstance(positions, dict):
        return {
            name: _nest_batches(batches, position_in_batch)
            for name, position_in_batch in positions.items()
        }
    return [_nest_batches(batches, position_in_batch) for position_in_batch in positions]
