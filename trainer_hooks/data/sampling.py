"""The indices of a loader's batches: begun later, and drawn from random numbers of their own."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from zlib import crc32

from torch import Tensor
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
from trainer_hooks.data.passage import pass_over
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LateSampler", "fingerprint", "has_indices", "has_own_sampler", "with_late_sampler"]

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
        recent: fingerprints of its last items, by their number in the epoch, from 1.
    """

    def __init__(self, sampler: Any, *, is_own: bool, ahead: int) -> None:
        self._sampler = sampler
        self._is_own = is_own
        self._items: _LateItems | None = None
        self.skip = 0
        self.recent: deque[tuple[int, int]] = deque(maxlen=ahead + 2)

    def __iter__(self) -> Iterator[Any]:
        numbers = rng.OwnNumbers(rng.draw_seed()) if self._is_own else None
        self.recent.clear()
        if numbers is None and not self.skip:
            return iter(self._sampler)
        self._items = _LateItems(self._sampler, self.skip, numbers, self.recent)
        return self._items

    def begin(self) -> None:
        """Leave the first items out now, and not when the first one is asked for."""
        if self._items is not None:
            self._items.begin()

    def __len__(self) -> int:
        return len(self._sampler)


class _LateItems:
    """The items of a sampler after the first ones."""

    def __init__(
        self,
        sampler: Any,
        skip: int,
        numbers: rng.OwnNumbers | None,
        recent: deque[tuple[int, int]],
    ) -> None:
        self._numbers = numbers
        self._skip = skip
        self._recent = recent
        self._count = 0
        if numbers is None:
            self._items = iter(sampler)
        else:
            with numbers:
                self._items = iter(sampler)

    def __iter__(self) -> Iterator[Any]:
        return self

    def begin(self) -> None:
        """Leave the first items out."""
        skip, self._skip = self._skip, 0
        if not skip:
            return
        self._count = skip
        if self._numbers is None:
            pass_over(self._items, skip)
        else:
            with self._numbers:
                last = pass_over(self._items, skip)
            self._recent.append((skip, fingerprint(last)))

    def __next__(self) -> Any:
        self.begin()
        if self._numbers is None:
            return next(self._items)
        with self._numbers:
            item = next(self._items)
        self._count += 1
        self._recent.append((self._count, fingerprint(item)))
        return item


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


def fingerprint(item: Any) -> int:
    """Return a number that is another one, very probably, for another batch or other indices.

    It looks at the beginning of what there is on the host, so that it costs little.
    """
    return crc32(repr(list(_excerpt(item, 3))).encode())


def _excerpt(item: Any, depth: int) -> Iterator[Any]:
    """Give a few of the numbers in a nested item."""
    if isinstance(item, Tensor):
        yield tuple(item.shape)
        if item.device.type == "cpu" and not item.is_sparse and item.numel():
            while item.dim() > 1:
                item = item[0]
            yield item[:16].tolist() if item.dim() else item.item()
    elif isinstance(item, int | float | str):
        yield item
    elif isinstance(item, dict) and depth:
        for key in list(item)[:4]:
            yield from _excerpt(item[key], depth - 1)
    elif isinstance(item, list | tuple) and depth:
        yield len(item)
        for part in item[: 16 if depth == 3 else 4]:
            yield from _excerpt(part, depth - 1)
