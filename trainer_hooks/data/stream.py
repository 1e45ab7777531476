"""The data stream: training batches of each epoch, and how a resume returns to any of them."""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from trainer_hooks._log import warn
from trainer_hooks.data.fast_forward import (
    DeferredSampler,
    has_custom_sampler,
    isolated_items,
    reason_for_loading,
    skip_items,
    with_deferred_sampler,
)
from trainer_hooks.data.fingerprint import LastBatch
from trainer_hooks.data.generators import (
    DrawDetector,
    StatefulGenerator,
    generator_states,
    generators_in,
    restore_generators,
)
from trainer_hooks.data.loader_inspection import (
    apply_batch_limit,
    no_batch_message,
    number_of_batches,
    shortage_message,
)
from trainer_hooks.data.loaders import has_indices, individual_loaders, set_epoch
from trainer_hooks.data.resume_checks import (
    compare_last,
    describe_structure,
    require_same,
    warn_of_changes,
    warn_of_workers,
)
from trainer_hooks.data.workers import has_state, have_workers_drawn, reproducible_iterator
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LoaderPositions", "LookaheadIterator", "TrainStream"]


_COMPARE_REASON = "the last one is compared with what it was"


class TrainStream:
    """The training loader, opened once per epoch at its start or at a saved position.

    An epoch is opened when its first batch is requested. At that moment the state that determines
    its batches is saved: the global random state, and the states of the generators that the loader
    and its parts hold. To return to batch k, that state is restored, the loader is opened again,
    and k batches are skipped: by index if a batch depends on its indices alone, else by loading and
    dropping them. The last of them is loaded in any case and compared with its fingerprint. A
    loader that keeps its own position restores it instead.

    Iterables, combined loaders and samplers that are not torch's may draw random numbers while the
    training draws too. They get a separate random state.

    Args:
        loader: an iterable of batches.
        limit: `limit_train_batches`.
        option: name of the option that sets the limit, for messages.

    Attributes:
        loader: the loader.
        num_batches: batches of the current epoch. It is infinity for a loader of unknown length
            until the last batch is fetched, and smaller for an epoch that is ended early.
        last: the last batch that was fetched; the loop passes each batch to it.
    """

    def __init__(
        self, loader: Any, limit: int | float = 1.0, option: str = "limit_train_batches"
    ) -> None:
        self.loader = loader
        self._size = apply_batch_limit(number_of_batches(loader), limit, option)
        self.num_batches = self._size
        self._positions = LoaderPositions(loader)
        self._opened_loader: Any = loader
        self._deferred_sampler: DeferredSampler | None = None
        if has_indices(loader) and has_custom_sampler(loader):
            self._opened_loader, self._deferred_sampler = with_deferred_sampler(loader)
        self.last = LastBatch()
        self._opened_with: dict[str, Any] = {}
        self._lookahead: LookaheadIterator | None = None
        self._stateful_iterator: Iterator[Any] | None = None

    @property
    def length(self) -> int | float:
        """Number of batches of an epoch that nothing ends early."""
        return self.num_batches if self._size == math.inf else self._size

    def limit_to(self, batches: int) -> None:
        """Set the largest number of batches in an epoch."""
        self.num_batches = self._size = min(self._size, batches)

    def open(self, epoch: int) -> Iterator[Any]:
        """Return an iterator over the batches of a new epoch; the first `next` opens the loader."""
        self.num_batches = self._size
        # `chain` is implemented in C: no Python frame per batch between the loader and the loop.
        return chain.from_iterable(self._open_lazily(epoch))

    def _open_lazily(self, epoch: int) -> Iterator[Iterator[Any]]:
        """Save the state that determines the epoch, open the loader and yield its iterator."""
        self._opened_with = {
            "rng": rng.capture(),
            "generators": generator_states(self._generators()),
            "positions": self._positions.read(),
        }
        self._positions.mark_opened()
        yield self._observe(self._iterate(epoch), 0)

    def reopen(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Return an iterator over the rest of an epoch, after `num_done` batches.

        The caller restores its own random state afterwards.

        Args:
            epoch: index of the epoch.
            num_done: batches of the epoch that are done.
            state: return value of `state_dict` at that point.

        Raises:
            DataError: the loader ends too early.
        """
        self._opened_with = dict(state["opened_with"])
        warn_of_workers(self.loader, state["shape"])
        workers_drew = state.get("workers_have_drawn", True)
        # If workers drew random numbers, the loader's own position is not enough: the random state
        # of workers starts with the epoch.
        has_loader_state = (
            state["loader"] is not None and has_state(self.loader) and not workers_drew
        )
        if not has_loader_state:
            self._positions.restore(self._opened_with.get("positions", []))
        # The loader is opened from the state of its first opening; the caller then restores the
        # state at the interruption.
        rng.restore(self._opened_with["rng"])
        restore_generators(self._generators(), self._opened_with["generators"])
        if has_loader_state:
            self.loader.load_state_dict(state["loader"])
            is_exhausted = self._size == math.inf and state["num_batches"] == num_done
            iterator = iter(()) if is_exhausted else self._iterate(epoch)
            # The lookahead loaded its batch before the training drew its last random numbers.
            rng.restore(state.get("rng_ahead") or self._opened_with["rng"])
        else:
            iterator = self._iterate_after(epoch, num_done, state)
        self._positions.mark_opened()
        iterator = self._observe(iterator, num_done)
        self.last.forget(state.get("last_print"))
        restore_generators(self._generators(), state["generators"])
        return iterator

    def restore_between(self, state: dict[str, Any]) -> None:
        """Restore the state that the next epoch depends on, saved between two epochs."""
        self.num_batches = state["num_batches"]
        warn_of_changes(self.loader, state.get("shape", []))
        self._positions.restore(state.get("positions", []))
        restore_generators(self._generators(), state["generators"])

    def close(self, *, is_complete: bool) -> None:
        """Close the current epoch.

        Args:
            is_complete: whether all its batches were fetched. A loader that keeps its own state is
                then iterated to its end, at which such loaders advance to the next epoch.
        """
        # With a limit the loader is not at its end, and iterating on would load the rest of the
        # epoch.
        is_whole = self._size == number_of_batches(self.loader)
        if is_complete and self._stateful_iterator is not None and is_whole:
            # Loaders with a state advance to the next epoch when their iterator is exhausted.
            next(self._stateful_iterator, None)
        self._opened_with = {}
        self._lookahead = self._stateful_iterator = None
        self.last.forget()

    def end_epoch_after(self, num_done: int) -> None:
        """End the current epoch after `num_done` batches, at whatever position the loader is."""
        self.num_batches = num_done
        self._stateful_iterator = None

    def release(self) -> None:
        """Drop all references to the loader, at the end of the run."""
        self.loader = self._opened_loader = ()
        self._positions, self._deferred_sampler = LoaderPositions(()), None
        self._lookahead = self._stateful_iterator = None
        self.last.forget()

    @contextmanager
    def replayed(self, epoch: int) -> Iterator[Iterator[Any]]:
        """Yield an iterator over an epoch's batches once more, and restore the loader's state."""
        generators, positions = generator_states(self._generators()), self._positions.read()
        loader_state = self.loader.state_dict() if has_state(self.loader) else None
        try:
            set_epoch(self.loader, epoch)
            with rng.isolated():
                count = None if self.num_batches == math.inf else int(self.num_batches)
                yield islice(reproducible_iterator(self.loader), count)
        finally:
            restore_generators(self._generators(), generators)
            self._positions.restore(positions)
            if loader_state is not None:
                self.loader.load_state_dict(loader_state)

    def warn_of_shortage(self, num_taken: int) -> None:
        """Warn that the loader gave fewer batches than its length.

        Raises:
            DataError: it gave none.
        """
        if num_taken == 0:
            raise DataError(no_batch_message("the training loader, in this epoch,", self.loader))
        if num_taken < number_of_batches(self.loader) < math.inf:
            warn(shortage_message(self.loader, "training", num_taken), TrainerHooksWarning)

    def state_dict(self, *, inside_batch: bool = False) -> dict[str, Any]:
        """Return the state for `reopen` at the current batch, and the structure of the loader.

        Args:
            inside_batch: whether the last batch that was fetched is still being trained on.
        """
        is_open = bool(self._opened_with)
        loader_state = None
        if has_state(self.loader) and is_open:
            # The lookahead holds a batch that the training has not had: what counts is the state
            # before it.
            is_ahead = self._lookahead is not None and self.num_batches == math.inf
            loader_state = (
                self._lookahead.state_before
                if self._lookahead is not None and is_ahead
                else self.loader.state_dict()
            )
        return {
            "opened_with": self._opened_with,
            "generators": generator_states(self._generators()),
            "loader": loader_state,
            "positions": [] if is_open else self._positions.read(),
            "num_batches": self.num_batches,
            "shape": describe_structure(self.loader),
            "rng_ahead": self._lookahead.rng_before if self._lookahead is not None else None,
            "workers_have_drawn": is_open and self._have_workers_drawn(),
            "last_print": {} if inside_batch else self.last.fingerprint,
        }

    def require_same(self, state: dict[str, Any]) -> None:
        """Check that the batches of an interrupted epoch can be found again.

        Raises:
            DataError: the loader differs; the message says how.
        """
        if state["opened_with"]:
            require_same(self.loader, state, self._generators())

    def _iterate(self, epoch: int) -> Iterator[Any]:
        """Open the loader for an epoch and return its iterator."""
        set_epoch(self.loader, epoch)
        self.num_batches = self._size
        self._lookahead = None
        if (
            has_indices(self.loader)
            or has_state(self.loader)
            or isinstance(self.loader, list | tuple)
        ):
            return reproducible_iterator(self._opened_loader)
        return isolated_items(lambda: reproducible_iterator(self.loader))

    def _iterate_after(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Open an epoch and skip its first batches, without loading them where possible."""
        workers = getattr(self.loader, "num_workers", 0)
        workers_drew = state.get("workers_have_drawn", True)
        if num_done and has_indices(self.loader) and not (workers and workers_drew):
            return self._iterate_by_index(epoch, num_done, workers, state)
        iterator = self._iterate(epoch)
        if num_done:
            last = skip_items(iterator, num_done, reason_for_loading(self.loader))
            compare_last(self.loader, last, state)
        return iterator

    def _iterate_by_index(
        self, epoch: int, num_done: int, workers: int, state: dict[str, Any]
    ) -> Iterator[Any]:
        """Open an epoch, skip batches by index, and load the last of them to compare it.

        With workers, as many batches are loaded as it takes for each later batch to be loaded by
        the worker that would have loaded it in the interrupted run.
        """
        if self._deferred_sampler is None:
            self._opened_loader, self._deferred_sampler = with_deferred_sampler(self.loader)
        num_loaded = (num_done - 1) % max(workers, 1) + 1
        detector = DrawDetector(self._generators())
        self._deferred_sampler.skip, self._deferred_sampler.on_first_item = (
            num_done - num_loaded,
            detector.restart,
        )
        iterator = self._iterate(epoch)
        # Only the iterator made above skips; workers of later epochs start at the beginning.
        self._deferred_sampler.skip = 0
        if not workers and "rng_at_first" in self._opened_with:
            # Older versions opened an epoch before its first batch was requested, and saved this
            # state.
            rng.restore(self._opened_with["rng_at_first"])
        last = skip_items(iterator, num_loaded, _COMPARE_REASON)
        self._deferred_sampler.on_first_item = bool
        # If loading draws random numbers, this batch got other ones than in the interrupted run.
        if not (self._have_workers_drawn() if workers else detector.has_drawn):
            compare_last(self.loader, last, state)
        return iterator

    def _observe(self, iterator: Iterator[Any], num_done: int) -> Iterator[Any]:
        """Return the iterator, wrapped or remembered as the type of the loader requires."""
        if self._size == math.inf:
            self._lookahead = iterator = LookaheadIterator(
                self.loader, iterator, num_done, self._set_size
            )
        elif has_state(self.loader):
            self._stateful_iterator = iterator
        return iterator

    def _set_size(self, size: int) -> None:
        """Set the number of batches once it is known."""
        self.num_batches = size

    def _have_workers_drawn(self) -> bool:
        """Return whether workers drew random numbers in this epoch, or may have."""
        return any(
            have_workers_drawn(self._opened_loader if single is self.loader else single)
            for single in individual_loaders(self.loader)
            if getattr(single, "num_workers", 0)
        )

    def _generators(self) -> dict[str, StatefulGenerator]:
        """Return the random generators that the loader holds."""
        return generators_in({"train loader": self.loader})


class LoaderPositions:
    """States of loaders that keep their own position, at the start and the end of epochs.

    Args:
        loader: the training loader, alone or combined.
    """

    def __init__(self, loader: Any) -> None:
        self._loaders = [single for single in individual_loaders(loader) if has_state(single)]
        self._has_been_opened = False
        self._restored: list[Any] = []

    def mark_opened(self) -> None:
        """Record that the loaders were opened, so that they have a position."""
        self._has_been_opened = True
        self._restored = []

    def read(self) -> list[Any]:
        """Return the states with which the next epoch begins; None for a new loader."""
        if self._restored:
            return self._restored
        return [
            # A torchdata loader would start its workers to answer.
            None
            if not self._has_been_opened and _is_torchdata_loader(loader)
            else loader.state_dict()
            for loader in self._loaders
        ]

    def restore(self, states: list[Any]) -> None:
        """Restore the states that `read` returned, to open that epoch."""
        self._restored = list(states)
        for loader, state in zip(self._loaders, states, strict=False):
            if state is not None:
                loader.load_state_dict(state)
                if _is_torchdata_loader(loader):
                    _open_restored(loader)


def _open_restored(loader: Any) -> None:
    """Open a torchdata loader at its restored position, as it was open when the state was saved.

    From a restored position such a loader continues, and after an iterator it starts again. The
    interrupted run had an iterator, so its next epoch started again.
    """
    with rng.isolated():
        reproducible_iterator(loader)


def _is_torchdata_loader(loader: Any) -> bool:
    """Return whether a loader is a StatefulDataLoader of torchdata."""
    return isinstance(loader, DataLoader) and any(
        part.__module__.partition(".")[0] == "torchdata" for part in type(loader).__mro__
    )


_END = object()


class LookaheadIterator:
    """Yield batches one late, so that the last batch is known to be the last.

    Args:
        loader: the loader of the batches.
        iterator: the batches.
        num_done: batches of the epoch that are done.
        on_size_known: called with the number of batches once it is known.

    Attributes:
        state_before: the loader's own state before the held batch, if it has one.
        rng_before: in that case, the random state at that moment.
    """

    def __init__(
        self,
        loader: Any,
        iterator: Iterator[Any],
        num_done: int,
        on_size_known: Callable[[int], None],
    ) -> None:
        self._loader = loader
        self._iterator = iterator
        self._num_taken = num_done
        self._on_size_known = on_size_known
        self.state_before: Any = None
        self.rng_before: dict[str, Any] | None = None
        self._next_batch = self._fetch()
        # Resumed after the last batch: the length of the epoch is known at once.
        if self._next_batch is _END and num_done:
            on_size_known(num_done)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._next_batch
        if batch is _END:
            raise StopIteration
        self._next_batch = self._fetch()
        self._num_taken += 1
        if self._next_batch is _END:
            self._on_size_known(self._num_taken)
        return batch

    def _fetch(self) -> Any:
        """Return the next batch, after the state before it was saved."""
        if has_state(self._loader):
            # Before the fetch: a resume fetches the held batch again.
            self.state_before = self._loader.state_dict()
            self.rng_before = rng.capture()
        return next(self._iterator, _END)
