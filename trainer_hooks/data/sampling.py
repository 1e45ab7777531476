"""The indices of a loader's batches: begun later, and drawn from random numbers of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks.data.loaders import copy_loader
from trainer_hooks.data.own_items import OwnItems
from trainer_hooks.data.passage import pass_over
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LateSampler", "has_indices", "has_own_sampler", "with_late_sampler"]

_TORCH_SAMPLERS = frozenset(
    {
        RandomSampler,
        SequentialSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
        DistributedSampler,
        list,
        tuple,
        range,
    }
)
"""Samplers that draw their order, or the seed of it, as soon as they are begun."""


class LateSampler:
    """A sampler that can leave out its first items.

    Args:
        sampler: the sampler or batch sampler.
        is_own: whether it is of a class that torch does not know. It may draw random numbers item
            by item, while the training draws too, so it is given some of its own.
        ahead: how many items may be taken before the batch that they belong to is done.

    Attributes:
        skip: how many items its iterators leave out; torch may ask for more than one.
        own: the items of the epoch that was begun last, if `is_own`.
    """

    def __init__(self, sampler: Any, *, is_own: bool, ahead: int) -> None:
        self._sampler = sampler
        self._is_own = is_own
        self._ahead = ahead
        self._items: _LateItems | None = None
        self.skip = 0
        self.own: OwnItems | None = None

    def __iter__(self) -> Iterator[Any]:
        if self._is_own:
            numbers = rng.OwnNumbers(rng.draw_seed())
            self.own = OwnItems(lambda: iter(self._sampler), numbers, self._ahead)
        items = iter(self._sampler if self.own is None else self.own)
        if not self.skip:
            return items
        self._items = _LateItems(items, self.skip)
        return self._items

    def begin(self) -> None:
        """Leave the first items out now, and not when the first one is asked for."""
        if self._items is not None:
            self._items.begin()

    def __len__(self) -> int:
        return len(self._sampler)


class _LateItems:
    """The items of a sampler after the first ones."""

    def __init__(self, items: Iterator[Any], skip: int) -> None:
        self._items = items
        self._skip = skip

    def __iter__(self) -> Iterator[Any]:
        return self

    def begin(self) -> None:
        """Leave the first items out."""
        skip, self._skip = self._skip, 0
        if skip:
            pass_over(self._items, skip)

    def __next__(self) -> Any:
        self.begin()
        return next(self._items)


def has_indices(loader: Any) -> bool:
    """Return whether a loader is torch's and loads by index: nothing but that decides a batch."""
    return type(loader) is DataLoader and not isinstance(loader.dataset, IterableDataset)


def has_own_sampler(loader: DataLoader[Any]) -> bool:
    """Return whether the order of such a loader comes from a class that torch does not know."""
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        return True
    return type(loader.sampler) not in _TORCH_SAMPLERS


def with_late_sampler(loader: DataLoader[Any]) -> tuple[DataLoader[Any], LateSampler]:
    """Return a copy of a loader whose epochs can be begun later, and what to say that to."""
    ahead = loader.num_workers * (loader.prefetch_factor or 0)
    is_own = has_own_sampler(loader)
    if loader.batch_sampler is None:
        late = LateSampler(loader.sampler, is_own=is_own, ahead=ahead)
        return copy_loader(loader, sampler=late), late
    late = LateSampler(loader.batch_sampler, is_own=is_own, ahead=ahead)
    return copy_loader(loader, batch_sampler=late), late
