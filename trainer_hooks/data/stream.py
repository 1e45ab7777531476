"""The training batches, epoch after epoch, and how to come back to any one of them."""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.data.comparing import (
    compare_last,
    require_same,
    shape_of,
    warn_of_changes,
    warn_of_workers,
)
from trainer_hooks.data.fingerprint import LastBatch
from trainer_hooks.data.generators import (
    DrawWatch,
    KeptGenerator,
    generator_states,
    generators_in,
    restore_generators,
)
from trainer_hooks.data.loaders import has_indices, set_epoch, singles_of
from trainer_hooks.data.lookahead import LookAhead
from trainer_hooks.data.own_items import own_items
from trainer_hooks.data.passage import pass_over, why_loading
from trainer_hooks.data.positions import Positions
from trainer_hooks.data.sampling import LateSampler, has_own_sampler, with_late_sampler
from trainer_hooks.data.sizes import limited, no_batch, number_of_batches, shortage
from trainer_hooks.data.workers import has_state, have_drawn, iterator_of
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TrainStream"]

_TO_COMPARE = "the last one is compared with what it was"


class TrainStream:
    """Opens the training loader once an epoch, at its start or where a checkpoint was saved.

    An epoch is opened as its first batch is asked for. What its batches depend on is noted then:
    the random numbers, and the states of the generators that the loader and its parts keep. To come
    back to batch k, these are put back, the loader is opened again, and k batches are passed over:
    by index where a batch depends on its indices alone, by loading and dropping them otherwise. The
    last one is loaded in any case, and compared with what it was. A loader that keeps its own
    position is asked for it instead.

    What is not torch's own, and may draw random numbers while the training does so too, is given
    random numbers of its own: iterables, combined loaders, and samplers of other classes.

    Args:
        loader: an iterable of batches.
        limit: `limit_train_batches`.
        option: the name of the option that the limit comes from, for messages.

    Attributes:
        loader: the loader.
        num_batches: batches of the epoch under way, infinity where the loader cannot say; then it
            becomes known when the last batch is taken. One that is ended early has fewer.
        last: what keeps the last batch that was taken; the loop hands each over.
    """

    def __init__(
        self, loader: Any, limit: int | float = 1.0, option: str = "limit_train_batches"
    ) -> None:
        self.loader = loader
        self._size = limited(number_of_batches(loader), limit, option)
        self.num_batches = self._size
        self._positions = Positions(loader)
        self._opened: Any = loader
        self._late: LateSampler | None = None
        if has_indices(loader) and has_own_sampler(loader):
            self._opened, self._late = with_late_sampler(loader)
        self.last = LastBatch()
        self._opened_with: dict[str, Any] = {}
        self._ahead: LookAhead | None = None
        self._stateful: Iterator[Any] | None = None

    @property
    def length(self) -> int | float:
        """The same of an epoch that nothing ends early."""
        return self.num_batches if self._size == math.inf else self._size

    def limit_to(self, batches: int) -> None:
        """Take at most so many batches an epoch."""
        self.num_batches = self._size = min(self._size, batches)

    def open(self, epoch: int) -> Iterator[Any]:
        """Return an iterator over the batches of a new epoch, which opens it when it is asked."""
        self.num_batches = self._size
        # there is no frame of Python between the loader's iterator and who takes the batches
        return chain.from_iterable(self._openings(epoch))

    def _openings(self, epoch: int) -> Iterator[Iterator[Any]]:
        self._opened_with = {
            "rng": rng.capture(),
            "generators": generator_states(self._generators()),
            "positions": self._positions.read(),
        }
        self._positions.note_opened()
        yield self._watched(self._iterate(epoch), 0)

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
        warn_of_workers(self.loader, state["shape"])
        has_drawn = state.get("workers_have_drawn", True)
        is_direct = state["loader"] is not None and has_state(self.loader) and not has_drawn
        if not is_direct:
            self._positions.restore(self._opened_with.get("positions", []))
        rng.restore(self._opened_with["rng"])
        restore_generators(self._generators(), self._opened_with["generators"])
        if is_direct:
            self.loader.load_state_dict(state["loader"])
            has_seen_end = self._size == math.inf and state["num_batches"] == done
            iterator = iter(()) if has_seen_end else self._iterate(epoch)
            # the batch that was taken ahead was loaded before the training drew what it drew last
            rng.restore(state.get("rng_ahead") or self._opened_with["rng"])
        else:
            iterator = self._iterate_after(epoch, done, state)
        self._positions.note_opened()
        iterator = self._watched(iterator, done)
        self.last.forget(state.get("last_print"))
        restore_generators(self._generators(), state["generators"])
        return iterator

    def restore_between(self, state: dict[str, Any]) -> None:
        """Take back what the next epoch depends on, after one that was over at the checkpoint."""
        self.num_batches = state["num_batches"]
        warn_of_changes(self.loader, state.get("shape", []))
        self._positions.restore(state.get("positions", []))
        restore_generators(self._generators(), state["generators"])

    def close(self, *, is_complete: bool) -> None:
        """Forget the epoch that is over.

        Args:
            is_complete: whether all its batches were taken. A loader that keeps its own state is
                then let see its end, which is where such loaders turn to the next epoch.
        """
        is_whole = self._size == number_of_batches(self.loader)
        if is_complete and self._stateful is not None and is_whole:
            next(self._stateful, None)
        self._opened_with = {}
        self._ahead = self._stateful = None
        self.last.forget()

    def cut(self, done: int) -> None:
        """Let the epoch under way end after so many batches, wherever the loader stands."""
        self.num_batches = done
        self._stateful = None

    def let_go(self) -> None:
        """Forget the loader, at the end of the run; whoever else holds on to it decides its end."""
        self.loader = self._opened = ()
        self._positions, self._late = Positions(()), None
        self._ahead = self._stateful = None
        self.last.forget()

    @contextmanager
    def replayed(self, epoch: int) -> Iterator[Iterator[Any]]:
        """Give the batches of an epoch once more; what the next one depends on is put back after.

        Args:
            epoch: the one that samplers are told; a resumed run may not have opened it.
        """
        generators, positions = generator_states(self._generators()), self._positions.read()
        kept = self.loader.state_dict() if has_state(self.loader) else None
        try:
            set_epoch(self.loader, epoch)
            with rng.isolated():
                count = None if self.num_batches == math.inf else int(self.num_batches)
                yield islice(iterator_of(self.loader), count)
        finally:
            restore_generators(self._generators(), generators)
            self._positions.restore(positions)
            if kept is not None:
                self.loader.load_state_dict(kept)

    def warn_of_shortage(self, given: int) -> None:
        """Report that an epoch's batches ended after `given`, before they were expected to.

        Raises:
            DataError: there was none at all.
        """
        if given == 0:
            raise DataError(no_batch("the training loader, in this epoch,", self.loader))
        if given < number_of_batches(self.loader) < math.inf:
            warn(shortage(self.loader, "training", given), TrainerHooksWarning)

    def state_dict(self, *, inside_batch: bool = False) -> dict[str, Any]:
        """Return what `reopen` needs at the present batch, and what the loader must be like.

        Args:
            inside_batch: whether the last batch that was taken is not done yet.
        """
        is_open = bool(self._opened_with)
        loader_state = None
        if has_state(self.loader) and is_open:
            is_ahead = self._ahead is not None and self.num_batches == math.inf
            loader_state = (
                self._ahead.state_before
                if self._ahead is not None and is_ahead
                else self.loader.state_dict()
            )
        return {
            "opened_with": self._opened_with,
            "generators": generator_states(self._generators()),
            "loader": loader_state,
            "positions": [] if is_open else self._positions.read(),
            "num_batches": self.num_batches,
            "shape": shape_of(self.loader),
            "rng_ahead": self._ahead.rng_before if self._ahead is not None else None,
            "workers_have_drawn": is_open and self._have_workers_drawn(),
            "last_print": {} if inside_batch else self.last.fingerprint,
        }

    def require_same(self, state: dict[str, Any]) -> None:
        """Make sure that the batches of an epoch that was cut can be found again.

        Raises:
            DataError: the loader is not built as it was; the message says what differs.
        """
        if state["opened_with"]:
            require_same(self.loader, state, self._generators())

    def _iterate(self, epoch: int) -> Iterator[Any]:
        set_epoch(self.loader, epoch)
        self.num_batches = self._size
        self._ahead = None
        if (
            has_indices(self.loader)
            or has_state(self.loader)
            or isinstance(self.loader, list | tuple)
        ):
            return iterator_of(self._opened)
        return own_items(lambda: iterator_of(self.loader))

    def _iterate_after(self, epoch: int, done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Open an epoch and pass over its first batches, without loading them where it may be."""
        workers = getattr(self.loader, "num_workers", 0)
        has_drawn = state.get("workers_have_drawn", True)
        if done and has_indices(self.loader) and not (workers and has_drawn):
            return self._iterate_by_index(epoch, done, workers, state)
        iterator = self._iterate(epoch)
        if done:
            last = pass_over(iterator, done, why_loading(self.loader))
            compare_last(self.loader, last, state)
        return iterator

    def _iterate_by_index(
        self, epoch: int, done: int, workers: int, state: dict[str, Any]
    ) -> Iterator[Any]:
        """Open an epoch later, and load the last batch that is behind, to compare it.

        With workers, as many are loaded as it takes for each of the batches to come to be loaded by
        the worker that it would have had.
        """
        if self._late is None:
            self._opened, self._late = with_late_sampler(self.loader)
        loaded = (done - 1) % max(workers, 1) + 1
        draws = DrawWatch(self._generators())
        self._late.skip, self._late.tell_begun = done - loaded, draws.begin
        iterator = self._iterate(epoch)
        self._late.skip = 0
        if not workers and "rng_at_first" in self._opened_with:
            # of a checkpoint that was saved when epochs were opened before their first batch
            rng.restore(self._opened_with["rng_at_first"])
        last = pass_over(iterator, loaded, _TO_COMPARE)
        self._late.tell_begun = bool
        # what is drawn while this batch is loaded is not what was drawn then
        if not (self._have_workers_drawn() if workers else draws.has_seen_any):
            compare_last(self.loader, last, state)
        return iterator

    def _watched(self, iterator: Iterator[Any], done: int) -> Iterator[Any]:
        """Return the iterator with what has still to be noted of it."""
        if self._size == math.inf:
            self._ahead = iterator = LookAhead(self.loader, iterator, done, self._learn_size)
        elif has_state(self.loader):
            self._stateful = iterator
        return iterator

    def _learn_size(self, size: int) -> None:
        self.num_batches = size

    def _have_workers_drawn(self) -> bool:
        return any(
            have_drawn(self._opened if single is self.loader else single)
            for single in singles_of(self.loader)
            if getattr(single, "num_workers", 0)
        )

    def _generators(self) -> dict[str, KeptGenerator]:
        return generators_in({"train loader": self.loader})
