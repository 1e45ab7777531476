"""Record the random states from which a loader draws, so that a resume can draw the same again.

Iterables, combined loaders and samplers draw from the global random state, as in any loop, and the
training draws from it in between. So the items of an epoch can be gone through again only if the
state before each item is known.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any

from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_END = object()
_OBSERVED = 4
"""First items that are observed in any case."""
_MAX_STATES = 1000
"""States that are recorded in an epoch, of 3 to 13 KB each."""


class DrawRecorder:
    """Record the random states from which an iterable draws, and draw from them again.

    A step is a call that may draw: the opening of the iterable, or the fetch of an item. The states
    before a step are recorded of the libraries from which it draws, unless they are those after the
    step before. So it is one record in an epoch if the training draws nothing on the host. A step
    that draws again leaves the states as it did then.

    Reading the states takes longer than a small training step. So an iterable that draws nothing
    for its second to fourth item is not observed from then on. The opening and the first item do
    not count, as many iterables draw their order with them.

    If an epoch has too many records, the rest of it draws from a separate random state.

    Args:
        state: return value of `state_dict`; its steps draw again from where they drew.
    """

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        state = state or {}
        self._num_recorded: int = state.get("steps", 0)
        self._draws_items: bool = state.get("draws_items", False)
        self._records: dict[int, dict[str, Any]] = dict(state.get("records", {}))
        self._separate_from: int | None = state.get("separate_from")
        self._seed: int = state.get("seed", 0)
        self._separate = rng.SeparateRandomState(self._seed)
        self._num_steps = 0
        self._is_inside = False
        self._last_states: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the records as plain data and tensors; empty if nothing was drawn."""
        if not self._records:
            return {}
        return {
            "steps": max(self._num_steps, self._num_recorded),
            "draws_items": self._draws_items,
            "records": dict(self._records),
            "separate_from": self._separate_from,
            "seed": self._seed,
        }

    def items(self, open_iterator: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Open an iterable at once, and return an iterator over its items."""
        return self._items(self.step(open_iterator))

    def _items(self, iterator: Iterator[Any]) -> Iterator[Any]:
        fetch = partial(next, iterator, _END)
        for number in count():
            if number >= _OBSERVED and not self._draws_items:
                break
            item = self.step(fetch)
            if item is _END:
                return
            yield item
        yield from iterator

    def step(self, draw: Callable[[], Any]) -> Any:
        """Return `draw()`, with its draws recorded or as they were recorded."""
        if self._is_inside:  # a combined loader starts one of its loaders again within a step
            return draw()
        number = self._num_steps
        self._num_steps += 1
        self._is_inside = True
        try:
            if self._separate_from is not None and number >= self._separate_from:
                with self._separate:
                    return draw()
            if number < self._num_recorded:
                rng.restore_host(rng.raw_states(self._records.get(number, {})))
                item = draw()
                if number == self._num_recorded - 1:
                    drawn_from = {name for record in self._records.values() for name in record}
                    self._last_states = rng.host_random_state(drawn_from)
                return item
            before = rng.host_random_state()
            item = draw()
            self._record(number, before, rng.host_random_state())
        finally:
            self._is_inside = False
        return item

    def _record(self, number: int, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Record the states before a step that are not those after the step before."""
        drawn_from = [name for name in rng.libraries_drawn_from(before, after) if name in before]
        self._draws_items |= bool(drawn_from) and 1 < number <= _OBSERVED
        drawn = {name: before[name] for name in drawn_from}
        changed = rng.libraries_drawn_from(self._last_states, drawn)
        self._last_states |= {name: after[name] for name in drawn_from}
        if changed:
            self._records[number] = rng.plain_states({name: drawn[name] for name in changed})
            if len(self._records) == _MAX_STATES:
                self._separate_from, self._seed = number + 1, rng.draw_seed()
                self._separate = rng.SeparateRandomState(self._seed)


class RecordedSampler:
    """A sampler whose draws are recorded, and whose first items can be skipped.

    Args:
        sampler: the sampler or batch sampler.
        is_lazy: whether the sampler is opened with its first item, and not as torch does, which
            opens it before the loader draws the seed of its workers, and once or twice.

    Attributes:
        make_recorder: makes a recorder for each new iterator; None if draws are not recorded.
        num_early: number of items that new iterators request as soon as they are opened.
        skip_first: skips the first items of an iterator that is opened.
        on_first_item: called when the first item after those is about to be yielded.
    """

    def __init__(self, sampler: Any, *, is_lazy: bool = False) -> None:
        self._sampler = sampler
        self._is_lazy = is_lazy
        self.make_recorder: Callable[[], DrawRecorder] | None = None
        self.num_early = 0
        # `bool` stands for no function: it takes any argument or none, and does nothing.
        self.skip_first: Callable[[Iterator[Any]], object] = bool
        self.on_first_item: Callable[[], object] = bool
        # two: where the length is unknown, the loader is one item ahead of the training
        self._last_items: deque[Any] = deque(maxlen=2)

    def __iter__(self) -> Iterator[Any]:
        items = self._open_lazily() if self._is_lazy else self._open()
        return self._items(chain([*islice(items, self.num_early)], items), self.skip_first)

    def _open(self) -> Iterator[Any]:
        if self.make_recorder is None:
            return iter(self._sampler)
        return self.make_recorder().items(partial(iter, self._sampler))

    def _open_lazily(self) -> Iterator[Any]:
        yield from self._open()

    def _items(
        self, items: Iterator[Any], skip_first: Callable[[Iterator[Any]], object]
    ) -> Iterator[Any]:
        """Yield the items after those that are skipped."""
        skip_first(items)
        # from the first item on that is not skipped, draws belong to batches that are loaded
        for item in islice(items, 1):
            self.on_first_item()
            self._last_items.append(item)
            yield item
        for item in items:
            self._last_items.append(item)
            yield item

    def item_before(self, number: int) -> Any:
        """Return the item that was yielded before the last `number` (0 or 1) ones, or None."""
        return self._last_items[-1 - number] if len(self._last_items) > number else None

    def __len__(self) -> int:
        return len(self._sampler)
