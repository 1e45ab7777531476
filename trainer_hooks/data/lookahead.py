"""Iterators around a training epoch's batches: one that knows the last, one with own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.data.sampling import fingerprint
from trainer_hooks.data.workers import has_state
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LookAhead", "OwnBatches"]

_END = object()


class OwnBatches:
    """Batches of an iterable that draws from random numbers of its own while it gives one.

    Attributes:
        given: fingerprints of the last two batches; one may have been taken ahead.
        count: how many were given.
    """

    def __init__(self, open_iterator: Callable[[], Iterator[Any]], numbers: rng.OwnNumbers) -> None:
        self._numbers = numbers
        self.given: tuple[int, int] = (0, 0)
        self.count = 0
        with numbers:
            self._iterator = open_iterator()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._numbers:
            batch = next(self._iterator)
        self.given = (self.given[1], fingerprint(batch))
        self.count += 1
        return batch

    def print_of(self, number: int) -> int | None:
        """Return the fingerprint of a batch by its number in the epoch, if it is known."""
        behind = self.count - number
        return self.given[1 - behind] if behind in (0, 1) and number > 0 else None


class LookAhead:
    """Hands batches out one late, so that the last one is known to be the last.

    Args:
        loader: where they come from.
        iterator: the batches.
        done: batches of the epoch that are behind.
        tell_size: called with the number of batches once it is known.

    Attributes:
        state_before: the loader's own state before the batch that is held, where it has one.
        rng_before: in that case, the random numbers then.
    """

    def __init__(
        self,
        loader: Any,
        iterator: Iterator[Any],
        done: int,
        tell_size: Callable[[int], None],
    ) -> None:
        self._loader = loader
        self._iterator = iterator
        self._taken = done
        self._tell_size = tell_size
        self.state_before: Any = None
        self.rng_before: dict[str, Any] | None = None
        self._held = self._fetch()
        if self._held is _END and done:
            tell_size(done)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._held
        if batch is _END:
            raise StopIteration
        self._held = self._fetch()
        self._taken += 1
        if self._held is _END:
            self._tell_size(self._taken)
        return batch

    def _fetch(self) -> Any:
        if has_state(self._loader):
            self.state_before = self._loader.state_dict()
            self.rng_before = rng.capture()
        return next(self._iterator, _END)
