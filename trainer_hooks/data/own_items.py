"""Items of an iterable that may draw random numbers as it goes: batches, or a sampler's indices."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.runtime import OwnNumbers

__all__ = ["OwnItems", "fingerprint"]

_FIRST = 4
_PRINTS = 64


class OwnItems:
    """Gives the items of an iterable, which draws from random numbers of its own meanwhile.

    To exchange the random numbers for each item takes longer than a small step of training. So the
    first four items are watched; if none but the first drew, the next four are left alone, one is
    watched, eight are left alone, and so on, twice as many each time, at no cost. Once one drew,
    all are given numbers of their own.

    Args:
        open_iterator: opens the iterable.
        numbers: what it draws from.
        ahead: how many items may be taken before the one that is asked about.
    """

    def __init__(
        self, open_iterator: Callable[[], Iterator[Any]], numbers: OwnNumbers, ahead: int = 1
    ) -> None:
        self._seen = _Seen(deque(maxlen=ahead + _PRINTS))
        with numbers:
            iterator = open_iterator()
        # no part of this object knows it, so that workers end as soon as nobody needs it any more
        self._items = chain.from_iterable(_stretches(iterator, numbers, self._seen))

    def __iter__(self) -> Iterator[Any]:
        return self._items

    @property
    def has_slipped(self) -> bool:
        """Whether it drew only after some items were left alone, which cannot be had again."""
        return self._seen.has_slipped

    def print_of(self, number: int) -> tuple[int, int] | None:
        """Return the last item up to this number that was watched: its number and fingerprint."""
        known = [entry for entry in self._seen.prints if entry[0] <= number]
        return known[-1] if known else None


@dataclass(slots=True)
class _Seen:
    """What was seen of an iterable.

    Attributes:
        prints: numbers and fingerprints of the last items that were watched.
        count: items that were given.
        draws: whether it draws random numbers as it goes.
        has_slipped: whether it did so only after some items were left alone.
        is_over: whether it ended.
    """

    prints: deque[tuple[int, int]]
    count: int = 0
    draws: bool = False
    has_slipped: bool = False
    is_over: bool = False


def _stretches(
    iterator: Iterator[Any], numbers: OwnNumbers, seen: _Seen
) -> Iterator[Iterator[Any]]:
    """Give iterators that have the items one after another, watched or left alone."""
    yield _watched(iterator, numbers, seen, _FIRST)
    alone = _FIRST
    while not seen.is_over and not seen.draws:
        yield islice(iterator, alone)
        seen.count += alone
        alone *= 2
        yield _watched(iterator, numbers, seen, 1)
        seen.has_slipped = seen.draws
    yield _watched(iterator, numbers, seen, None)


def _watched(
    iterator: Iterator[Any], numbers: OwnNumbers, seen: _Seen, most: int | None
) -> Iterator[Any]:
    """Give up to so many items, each with the iterable's own numbers."""
    given = 0
    while not seen.is_over and (most is None or given < most):
        before = None if seen.draws else numbers.moment()
        try:
            with numbers:
                item = next(iterator)
        except StopIteration:
            seen.is_over = True
            return
        given += 1
        seen.count += 1
        # with the first item samplers draw their order, however it goes on
        if before is not None and seen.count > 1:
            seen.draws = numbers.has_moved_since(before)
        seen.prints.append((seen.count, fingerprint(item)))
        yield item


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
