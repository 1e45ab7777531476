"""Items of an iterable that may draw random numbers as it goes: batches, or a sampler's indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["own_items"]

_WATCHED = 4
_END = object()


def own_items(open_iterator: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Give the items of an iterable, which draws from random numbers of its own meanwhile.

    They are seeded from the run's, and the iterable is opened, as the first item is asked for. To
    exchange the random numbers for each item takes longer than a small step of training, so what
    drew nothing in its second to fourth item is left alone from there on. With the first one, many
    draw an order, however they go on.
    """
    numbers = rng.OwnNumbers(rng.draw_seed())
    with numbers:
        iterator = open_iterator()
    number, draws = 0, False
    while number < _WATCHED or draws:
        with numbers:
            before = rng.moment() if number < _WATCHED else None
            item = next(iterator, _END)
            if before is not None:
                draws |= number > 0 and rng.has_moved_since(before)
        if item is _END:
            return
        yield item
        number += 1
    yield from iterator
