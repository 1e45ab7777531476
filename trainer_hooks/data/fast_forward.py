"""Fast-forward an epoch: skip the batches that the interrupted run did, by index where possible.

A sampler that is not torch's may draw random numbers item by item, while the training draws too.
`isolated_items` gives it a separate random state, so that skipping repeats what it drew.
"""

from __future__ import annotations

from itertools import islice
from time import monotonic
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

from trainer_hooks._log import log
from trainer_hooks.data.combined_loader import CombinedLoader
from trainer_hooks.data.loaders import copy_loader, has_indices
from trainer_hooks.data.workers import has_state
from trainer_hooks.errors import DataError
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "DeferredSampler",
    "has_custom_sampler",
    "isolated_items",
    "reason_for_loading",
    "skip_items",
    "with_deferred_sampler",
]


_END = object()
_FIRST_LOG_S = 3.0
"""Seconds until the first message about progress."""
_NEXT_LOG_S = 10.0
"""Seconds between two messages."""


def skip_items(items: Iterator[Any], count: int, loading_reason: str = "") -> Any:
    """Take `count` items of an iterator and return the last.

    Args:
        items: batches, or the indices of batches.
        count: number of items to take.
        loading_reason: why batches must be loaded to be skipped; empty if indices are skipped.

    Raises:
        DataError: there are fewer items.
    """
    action = "loading and dropping" if loading_reason else "passing over"
    reason = f", because {loading_reason}" if loading_reason else ""
    log.debug("resuming: %s %s batches%s", action, f"{count:,}", reason)
    loads_batches = bool(loading_reason)
    started = monotonic()
    next_log = started + _FIRST_LOG_S
    item: Any = None
    for number in range(count):
        item = next(items, _END)
        if item is _END:
            raise DataError(
                f"the training loader ended after {number} batches, but {count} of this epoch were "
                "done when the checkpoint was saved: it must give the same batches as then."
            )
        # Reading the clock costs more than skipping an index, so it is read every 1024 indices.
        if (loads_batches or number % 1024 == 0) and monotonic() > next_log:
            message = "resuming: %s batches, %s of %s done in %.0f s%s"
            log.warning(
                message, action, f"{number + 1:,}", f"{count:,}", monotonic() - started, reason
            )
            next_log = monotonic() + _NEXT_LOG_S
    return item


def reason_for_loading(loader: Any) -> str:
    """Return why the batches of a loader must be loaded to be skipped."""
    if has_indices(loader) or has_state(loader):
        return "its workers draw random numbers, which depend on what they loaded before"
    if isinstance(loader, CombinedLoader):
        return "several loaders are combined"
    if isinstance(loader, DataLoader) and type(loader) is not DataLoader:
        return f"a {type(loader).__qualname__} may do anything in its iterator"
    return "only by going through an iterable a place in it is found"


_OBSERVED = 4
"""Number of first items for which it is observed whether the iterable draws random numbers."""


def isolated_items(open_iterator: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Yield the items of an iterable, which draws from a separate random state.

    The state is seeded from the run's, and the iterable is opened, when the first item is
    requested. Exchanging the random state for each item takes longer than a small training step. So
    an iterable that drew nothing for its second to fourth item is left alone from then on. The
    first item does not count, as many iterables draw their order with it.
    """
    random_state = rng.SeparateRandomState(rng.draw_seed())
    with random_state:
        iterator = open_iterator()
    number, has_drawn = 0, False
    while number < _OBSERVED or has_drawn:
        with random_state:
            state_before = rng.host_random_state() if number < _OBSERVED else None
            item = next(iterator, _END)
            if state_before is not None:
                # Many iterables draw their order with the first item and nothing afterwards.
                has_drawn |= number > 0 and rng.has_drawn_since(state_before)
        if item is _END:
            return
        yield item
        number += 1
    yield from iterator


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
"""Samplers that draw their order, or its seed, as soon as they are iterated."""


class DeferredSampler:
    """A sampler that starts when its first index is requested, and can skip its first items.

    torch iterates over a sampler once or twice before that, depending on whether its workers are
    new.

    Args:
        sampler: the sampler or batch sampler.
        is_custom: whether its class is not torch's. Such a sampler may draw random numbers item by
            item, while the training draws too, so it gets a separate random state.

    Attributes:
        skip: number of items that new iterators skip.
        on_first_item: called when the first item after those is about to be yielded.
    """

    def __init__(self, sampler: Any, *, is_custom: bool) -> None:
        self._sampler = sampler
        self._is_custom = is_custom
        self.skip = 0
        self.on_first_item: Callable[[], object] = bool

    def __iter__(self) -> Iterator[Any]:
        return self._items(self.skip)

    def _items(self, skip: int) -> Iterator[Any]:
        """Yield the sampler's items after the first `skip`."""
        items = (
            isolated_items(lambda: iter(self._sampler)) if self._is_custom else iter(self._sampler)
        )
        if skip:
            skip_items(items, skip)
        # From the first item on that is not skipped, draws belong to batches that are loaded.
        for item in islice(items, 1):
            self.on_first_item()
            yield item
        yield from items

    def __len__(self) -> int:
        return len(self._sampler)


def has_custom_sampler(loader: DataLoader[Any]) -> bool:
    """Return whether the order of a loader comes from a class that is not torch's."""
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        return True
    return type(loader.sampler) not in _TORCH_SAMPLERS


def with_deferred_sampler(loader: DataLoader[Any]) -> tuple[DataLoader[Any], DeferredSampler]:
    """Return a copy of a loader with a deferred sampler, and that sampler."""
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    deferred = DeferredSampler(getattr(loader, name), is_custom=has_custom_sampler(loader))
    return copy_loader(loader, **{name: deferred}), deferred
