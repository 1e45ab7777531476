"""The training batches, epoch after epoch, and how to come back to any one of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks._log import log, warn
from trainer_hooks.data.loaders import (
    copy_loader,
    generators_of,
    limited,
    no_batch,
    number_of_batches,
    set_epoch,
    shortage,
)
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TrainStream"]


class TrainStream:
    """Opens the training loader once an epoch, at its start or where a checkpoint was saved.

    What an epoch's batches depend on is noted when it is opened: the random numbers and the states
    of the loader's own generators. To come back to batch k, both are put back, the loader is opened
    again, and k batches are passed over: by index where samples are loaded in this process, by
    loading and dropping them otherwise. A loader that keeps a state of its own is asked for it.

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

    def open(self, epoch: int) -> Iterator[Any]:
        """Return an iterator over the batches of a new epoch."""
        self._opened_with = {"rng": rng.capture(), "generators": self._generator_states()}
        return self._iterate(epoch, done=0)

    def reopen(self, epoch: int, done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Return an iterator over what is left of an epoch after `done` batches.

        The caller puts the random numbers of that moment back afterwards.

        Args:
            epoch: the epoch's index.
            done: batches of it that are behind.
            state: what `state_dict` returned then.

        Raises:
            DataError: the loader is not built as it was, or ends too early.
        """
        self._opened_with = state["opened_with"]
        self._require_generators(len(state["generators"]))
        if state["loader"] is not None and _has_state(self.loader):
            self.loader.load_state_dict(state["loader"])
            iterator = self._iterate(epoch, done, skip=0)
        else:
            rng.restore(self._opened_with["rng"])
            self._set_generator_states(self._opened_with["generators"])
            iterator = self._iterate(epoch, done, skip=done)
        self._set_generator_states(state["generators"])
        return iterator

    def close(self) -> None:
        """Forget the epoch that is over."""
        self._opened_with = {}
        self._ahead = None

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
        """Return what `reopen` needs at the present batch, or nothing outside an open epoch."""
        if not self._opened_with:
            return {}
        loader_state = None
        if _has_state(self.loader):
            ahead = self._ahead
            loader_state = self.loader.state_dict() if ahead is None else ahead.state_before
        return {
            "opened_with": self._opened_with,
            "generators": self._generator_states(),
            "loader": loader_state,
        }

    def _iterate(self, epoch: int, done: int, skip: int = 0) -> Iterator[Any]:
        set_epoch(self.loader, epoch)
        self.num_batches = self._size
        self._ahead = None
        if skip and _skips_by_index(self.loader):
            return _open_tail(self.loader, skip)
        iterator: Iterator[Any] = iter(self.loader)
        _drop(iterator, skip)
        if self._size < math.inf:
            return iterator
        self._ahead = _LookAhead(self, iterator, done)
        return self._ahead

    def _generator_states(self) -> list[Any]:
        return [generator.get_state() for generator in generators_of([self.loader])]

    def _set_generator_states(self, states: list[Any]) -> None:
        for generator, state in zip(generators_of([self.loader]), states, strict=True):
            generator.set_state(state)

    def _require_generators(self, saved: int) -> None:
        present = len(generators_of([self.loader]))
        if saved != present:
            raise DataError(
                f"the training loader has {present} random generator(s) of its own, but had "
                f"{saved} when the checkpoint was saved: the same batches cannot be found again. "
                "Build the loader as it was, with or without generator=."
            )


class _LookAhead:
    """Hands batches out one late, so that the last one is known to be the last."""

    def __init__(self, stream: TrainStream, iterator: Iterator[Any], done: int) -> None:
        self._stream = stream
        self._iterator = iterator
        self._taken = done
        self.state_before: Any = None
        self._held = self._fetch()

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
        if _has_state(loader):
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


def _open_tail(loader: DataLoader[Any], done: int) -> Iterator[Any]:
    """Return an iterator over a loader's batches after the first `done`, which are not loaded."""
    if loader.batch_sampler is None:
        tail = _Tail(loader.sampler, done)
        iterator = iter(copy_loader(loader, sampler=tail))
    else:
        tail = _Tail(loader.batch_sampler, done)
        iterator = iter(copy_loader(loader, batch_sampler=tail))
    # now, not at the first batch: samplers draw their seed after the loader drew its own
    tail.pass_over()
    return iterator


def _has_state(loader: Any) -> bool:
    """Return whether a loader can save its own position and come back to it."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _drop(iterator: Iterator[Any], count: int) -> None:
    if count:
        log.info("resuming: passing over %d batches", count)
    for number in range(count):
        if next(iterator, _END) is _END:
            raise DataError(
                f"the training loader ended after {number} batches, but {count} of this epoch were "
                "done when the checkpoint was saved: it must give the same batches as then."
            )
