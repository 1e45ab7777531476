"""The training batches, epoch after epoch, and how to come back to any one of them."""

from __future__ import annotations

import math
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks._log import log, warn
from trainer_hooks.data.loaders import (
    copy_loader,
    generators_of,
    has_state,
    iterator_of,
    limited,
    no_batch,
    number_of_batches,
    set_epoch,
    shape_of,
    shortage,
)
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TrainStream"]


class TrainStream:
    """Opens the training loader once an epoch, at its start or where a checkpoint was saved.

    What an epoch's batches depend on is noted when it is opened and when its first batch is taken,
    for that is when samplers draw: the random numbers and the states of the loader's own
    generators. To come back to batch k, both are put back, the loader is opened again, and k
    batches are passed over: by index where samples are loaded in this process, by loading and
    dropping them otherwise. A loader that keeps a state of its own is asked for it.

    Args:
        loader: an iterable of batches.
        limit: `limit_train_batches`.
        option: the name of the option that the limit comes from, for messages.

    Attributes:
        loader: the loader.
        num_batches: batches an epoch, infinity where the loader cannot say; then it becomes known
            when the last batch is taken.
    """

    def __init__(
        self, loader: Any, limit: int | float = 1.0, option: str = "limit_train_batches"
    ) -> None:
        self.loader = loader
        self._size = limited(number_of_batches(loader), limit, option)
        self.num_batches = self._size
        self._opened_with: dict[str, Any] = {}
        self._ahead: _LookAhead | None = None
        self._own: Iterator[Any] | None = None

    def open(self, epoch: int) -> Iterator[Any]:
        """Return an iterator over the batches of a new epoch."""
        self._opened_with = {"rng": rng.capture(), "generators": self._generator_states()}
        return self._watched(self._iterate(epoch), 0)

    def reopen(self, epoch: int, done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Return an iterator over what is left of an epoch after `done` batches.

        The caller puts the random numbers of that moment back afterwards.

        Args:
            epoch: the epoch's index.
            done: batches of it that are behind.
            state: what `state_dict` returned then.

        Raises:
            DataError: the loader ends too early.
        """
        self._opened_with = dict(state["opened_with"])
        if state["loader"] is not None and has_state(self.loader):
            self.loader.load_state_dict(state["loader"])
            has_seen_end = self._size == math.inf and state["num_batches"] == done
            iterator = iter(()) if has_seen_end else self._iterate(epoch)
        else:
            rng.restore(self._opened_with["rng"])
            self._set_generator_states(self._opened_with["generators"])
            iterator = self._iterate(epoch, skip=done)
        iterator = self._watched(iterator, done)
        self._set_generator_states(state["generators"])
        return iterator

    def restore_between(self, state: dict[str, Any]) -> None:
        """Take back what the next epoch depends on, after one that was over at the checkpoint."""
        self.num_batches = state["num_batches"]
        if state["loader"] is not None and has_state(self.loader):
            self.loader.load_state_dict(state["loader"])
        if len(state["generators"]) == len(self._generator_states()):
            self._set_generator_states(state["generators"])

    def close(self, *, is_complete: bool) -> None:
        """Forget the epoch that is over.

        Args:
            is_complete: whether all its batches were taken. A loader that keeps its own state is
                then let see its end, which is where such loaders turn to the next epoch.
        """
        if is_complete and self._own is not None and self._size == number_of_batches(self.loader):
            next(self._own, None)
        self._opened_with = {}
        self._ahead = self._own = None

    def warn_of_shortage(self, given: int) -> None:
        """Report that an epoch's batches ended after `given`, before they were expected to.

        Raises:
            DataError: there was none at all.
        """
        if given == 0:
            raise DataError(no_batch("the training loader, in this epoch,", self.loader))
        if given < number_of_batches(self.loader) < math.inf:
            warn(shortage(self.loader, "training", given), TrainerHooksWarning)

    def state_dict(self) -> dict[str, Any]:
        """Return what `reopen` needs at the present batch, and what the loader must be like."""
        loader_state = None
        if has_state(self.loader):
            ahead = self._ahead
            is_ahead = ahead is not None and self.num_batches == math.inf
            loader_state = ahead.state_before if ahead and is_ahead else self.loader.state_dict()
        return {
            "opened_with": self._opened_with,
            "generators": self._generator_states(),
            "loader": loader_state,
            "num_batches": self.num_batches,
            "shape": shape_of(self.loader),
        }

    def require_same(self, state: dict[str, Any]) -> None:
        """Make sure that the batches of an epoch that was cut can be found again.

        Raises:
            DataError: the loader is not built as it was; the message says what differs.
        """
        if not state["opened_with"]:
            return
        before, now = state["shape"], shape_of(self.loader)
        saved, present = len(state["generators"]), len(generators_of([self.loader]))
        changes = [
            f"{what} was {old} and is {new}"
            for loader_before, loader_now in zip(before, now, strict=False)
            for what, old, new in _changes(loader_before, loader_now)
        ]
        if len(before) != len(now):
            changes.append(f"the number of loaders was {len(before)} and is {len(now)}")
        if saved != present:
            changes.append(
                f"the number of random generators of its own (generator=) was {saved} and is "
                f"{present}"
            )
        if changes:
            raise DataError(
                "the training loader is not the one of the epoch that was cut, so its batches "
                f"cannot be found again: {'; '.join(changes)}. Build it as it was, or resume from "
                "a checkpoint that was saved at the end of an epoch."
            )

    def _iterate(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        set_epoch(self.loader, epoch)
        self.num_batches = self._size
        self._ahead = None
        if not skip:
            return iterator_of(self.loader)
        if _skips_by_index(self.loader):
            return _open_tail(self.loader, skip, self._opened_with["rng_at_first"])
        iterator = iterator_of(self.loader)
        rng.restore(self._opened_with["rng_at_first"])
        _drop(iterator, skip)
        return iterator

    def _watched(self, iterator: Iterator[Any], done: int) -> Iterator[Any]:
        """Return the iterator with what has still to be noted of it, and no Python frame more."""
        if "rng_at_first" not in self._opened_with:
            iterator = chain(self._noted_first(iterator), iterator)
        if self._size == math.inf:
            self._ahead = iterator = _LookAhead(self, iterator, done)
        elif has_state(self.loader):
            self._own = iterator
        return iterator

    def _noted_first(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Give the first batch, and note the random numbers that it begins with."""
        self._opened_with["rng_at_first"] = rng.capture()
        yield from islice(iterator, 1)

    def _generator_states(self) -> list[Any]:
        return [generator.get_state() for generator in generators_of([self.loader])]

    def _set_generator_states(self, states: list[Any]) -> None:
        for generator, state in zip(generators_of([self.loader]), states, strict=True):
            generator.set_state(state)


class _LookAhead:
    """Hands batches out one late, so that the last one is known to be the last."""

    def __init__(self, stream: TrainStream, iterator: Iterator[Any], done: int) -> None:
        self._stream = stream
        self._iterator = iterator
        self._taken = done
        self.state_before: Any = None
        self._held = self._fetch()
        if self._held is _END and done:
            stream.num_batches = done

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._held
        if batch is _END:
            raise StopIteration
        self._held = self._fetch()
        self._taken += 1
        if self._held is _END:
            self._stream.num_batches = self._taken
        return batch

    def _fetch(self) -> Any:
        loader = self._stream.loader
        if has_state(loader):
            self.state_before = loader.state_dict()
        return next(self._iterator, _END)


_END = object()


class _Tail:
    """A sampler without its first items."""

    def __init__(self, sampler: Any, done: int) -> None:
        self._sampler = sampler
        self._done = done
        self._items: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._items = iter(self._sampler)
        return self._items

    def pass_over(self) -> None:
        """Drop the first items of the iterator that was handed out."""
        _drop(self._items, self._done)

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._done)


def _skips_by_index(loader: Any) -> bool:
    """Return whether passing over indices gives the same batches as loading and dropping them.

    Not so with workers: what they draw at random depends on what they loaded before.
    """
    return (
        type(loader) is DataLoader
        and loader.num_workers == 0
        and not isinstance(loader.dataset, IterableDataset)
    )


def _open_tail(
    loader: DataLoader[Any], done: int, first_drawn_with: dict[str, Any]
) -> Iterator[Any]:
    """Return an iterator over a loader's batches after the first `done`, which are not loaded."""
    if loader.batch_sampler is None:
        tail = _Tail(loader.sampler, done)
        iterator = iter(copy_loader(loader, sampler=tail))
    else:
        tail = _Tail(loader.batch_sampler, done)
        iterator = iter(copy_loader(loader, batch_sampler=tail))
    # now, not at the first batch: samplers draw their seed after the loader drew its own
    rng.restore(first_drawn_with)
    tail.pass_over()
    return iterator


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Return what is known of both loaders and differs, with both values."""
    for what, old in before.items():
        new = now.get(what)
        if old is not None and new is not None and old != new:
            yield what, old, new


def _drop(iterator: Iterator[Any], count: int) -> None:
    if count:
        log.info("resuming: passing over %d batches", count)
    for number in range(count):
        if next(iterator, _END) is _END:
            raise DataError(
                f"the training loader ended after {number} batches, but {count} of this epoch were "
                "done when the checkpoint was saved: it must give the same batches as then."
            )
