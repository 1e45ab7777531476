"""The indices of a loader's batches: begun later, and drawn from random numbers of their own."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks.data.loaders import copy_loader
from trainer_hooks.data.own_items import own_items
from trainer_hooks.data.passage import pass_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LateSampler", "has_own_sampler", "with_late_sampler"]

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
    """A sampler that is begun when the first index is asked for, and can leave out its first items.

    torch begins a sampler once or twice before that, as the workers are new or not.

    Args:
        sampler: the sampler or batch sampler.
        is_own: whether it is of a class that torch does not know. It may draw random numbers item
            by item, while the training draws too, so it is given some of its own.

    Attributes:
        skip: how many items the iterators that are made now leave out.
        tell_begun: called when the first index after those is about to be handed out.
    """

    def __init__(self, sampler: Any, *, is_own: bool) -> None:
        self._sampler = sampler
        self._is_own = is_own
        self.skip = 0
        self.tell_begun: Callable[[], object] = bool

    def __iter__(self) -> Iterator[Any]:
        return self._items(self.skip)

    def _items(self, skip: int) -> Iterator[Any]:
        items = own_items(lambda: iter(self._sampler)) if self._is_own else iter(self._sampler)
        if skip:
            pass_over(items, skip)
        for item in islice(items, 1):
            self.tell_begun()
            yield item
        yield from items

    def __len__(self) -> int:
        return len(self._sampler)


def has_own_sampler(loader: DataLoader[Any]) -> bool:
    """Return whether the order of such a loader comes from a class that torch does not know."""
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        return True
    return type(loader.sampler) not in _TORCH_SAMPLERS


def with_late_sampler(loader: DataLoader[Any]) -> tuple[DataLoader[Any], LateSampler]:
    """Return a copy of a loader whose epochs can be begun later, and what to say that to."""
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    late = LateSampler(getattr(loader, name), is_own=has_own_sampler(loader))
    return copy_loader(loader, **{name: late}), late
