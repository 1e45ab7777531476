"""The data stream: training batches of each epoch, and how a resume returns to any of them.

A resume fast-forwards an epoch: it skips the batches that the interrupted run did, by index where
possible. Iterables, and samplers that are not torch's, may draw random numbers item by item, while
the training draws too. A `DrawRecorder` lets skipping repeat what they drew.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import chain, islice
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

from trainer_hooks._log import log, warn
from trainer_hooks.data.attributes import PlainAttributes, has_data_moved
from trainer_hooks.data.draw_recorder import DrawRecorder, RecordedSampler
from trainer_hooks.data.generators import (
    StatefulGenerator,
    generator_states,
    generators_in,
    restore_generators,
)
from trainer_hooks.data.loaders import (
    CombinedLoader,
    apply_batch_limit,
    copy_loader,
    has_indices,
    individual_loaders,
    no_batch_message,
    number_of_batches,
    restore_sampler_seeds,
    sampler_seeds,
    set_epoch,
    shortage_message,
)
from trainer_hooks.data.resume_checks import (
    LAST_DIGESTS,
    LAST_INDICES,
    LastBatch,
    compare_indices,
    compare_last,
    describe_structure,
    differing_part,
    fingerprint,
    require_same,
    warn_of_changes,
    warn_of_lost_position,
    warn_of_workers,
)
from trainer_hooks.data.workers import (
    depends_on_epochs,
    go_to_position,
    has_state,
    have_workers_drawn,
    holds_position,
    is_torchdata_loader,
    reproducible_iterator,
    stateful_sampler,
)
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_END = object()


class TrainStream:
    """The training loader, opened once per epoch at its start or at a saved position.

    An epoch is opened when its first batch is requested. At that moment the state that determines
    its batches is saved: the global random state, and the states of the generators that the loader
    and its parts hold. To return to batch k, that state is restored, the loader is opened again,
    and k batches are skipped: by index if a batch depends on its indices alone, else by loading and
    dropping them. The last of them is loaded in any case and compared with its fingerprint.

    A loader that keeps its own position restores one before batch k instead, from which the
    batches up to k are loaded. If the last of them is another batch than it was, the loader has not
    restored its position, and the epoch is opened as that of any other loader.

    Iterables, combined loaders and samplers that are not torch's may draw random numbers while the
    training draws too. The random states before their draws are recorded.

    Args:
        loader: an iterable of batches.
        limit: `limit_train_batches`.
        option: name of the option that sets the limit, for messages.

    Attributes:
        loader: the loader.
        num_batches: batches of the current epoch. It is infinity for a loader of unknown length
            until the last batch is fetched, and smaller for an epoch that is ended early.
        looks_ahead: whether batches are handed out one late, as the number of batches is unknown.
        last: the last batch that was fetched; the loop passes each batch to it.
        reloaded: the last batch before the position at which a resume opened the epoch; None
            without one. Whoever needs it takes it out.
    """

    def __init__(
        self, loader: Any, limit: int | float = 1.0, option: str = "limit_train_batches"
    ) -> None:
        self.loader = loader
        self._size = apply_batch_limit(number_of_batches(loader), limit, option)
        self.num_batches = self._size
        self.looks_ahead = self._size == math.inf
        self._keeps_position = has_state(loader)
        self._positions = LoaderPositions(loader)
        self._attributes = PlainAttributes(loader)
        self._opened_loader: Any = loader
        self._sampler: RecordedSampler | None = None
        # of the current epoch; and those from which a resume is opening it
        self._draws = DrawRecorder()
        self._replayed_draws: dict[str, Any] | None = None
        self._replayed_generators: dict[str, StatefulGenerator] = {}
        self._num_opened = 0
        if is_torchdata_loader(loader):
            self._sampler = stateful_sampler(loader)
            if self._sampler is not None:
                self._sampler.make_recorder = self._make_recorder
        elif has_indices(loader) and _has_custom_sampler(loader):
            self._replace_sampler()
        self.last = LastBatch()
        self.reloaded: Any = None
        self._opened_with: dict[str, Any] = {}
        self._lookahead: LookaheadIterator | None = None
        # of a loader that keeps its own position: its positions in the current epoch, the one that
        # a resume restored, and the last one of the epoch before
        self._recorder: PositionRecorder | None = None
        self._restored_position: dict[str, Any] | None = None
        self._has_lost_position = False
        self._last_epoch: dict[str, Any] = {}
        self._epoch: int | None = None

    @property
    def length(self) -> int | float:
        """Number of batches of an epoch that nothing ends early."""
        return self.num_batches if self.looks_ahead else self._size

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
            "positions": self._positions.read(reads_unopened=True),
            "attributes": self._attributes.changed(),
        }
        # after `read`, whose answer depends on whether the loaders were opened before
        self._positions.mark_opened()
        self._restored_position, self._last_epoch = None, {}
        # a batch that is held back was loaded with a random state that a resume needs
        yield self._observe(self._iterate(epoch), 0, records_all=self.looks_ahead)

    def reopen(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Return an iterator over the rest of an epoch, after `num_done` batches.

        Unlike `open` it opens the loader at once. The state registry's entry `rng`, loaded last,
        then restores the run's random state.

        Args:
            epoch: index of the epoch.
            num_done: batches of the epoch that are done.
            state: return value of `state_dict` at that point.

        Raises:
            DataError: the loader ends too early.
        """
        warn_of_workers(self.loader, state["shape"])
        restore_sampler_seeds(self.loader, state.get("sampler_seeds", []))
        iterator = self._return_to(epoch, num_done, state)
        self._positions.mark_opened()
        records_all = self.looks_ahead or state["records_all"]
        iterator = self._observe(iterator, num_done, records_all=records_all)
        if self.looks_ahead and state["num_batches"] <= num_done:
            # the epoch is at its end, although this loader may have more: of several ranks all end
            # with the shortest, and only the ranks whose loader is at its end see that again
            self.num_batches = num_done
        self.last.forget(state.get(LAST_DIGESTS))
        # last: opening and skipping have drawn from these generators
        restore_generators(self._generators(), state["generators"])
        self._restore_attributes(state)
        return iterator

    def _restore_attributes(self, state: dict[str, Any]) -> None:
        """Restore the attributes at the save, unless the sampler is at another place.

        By its workers' number a loader goes through its sampler ahead of the training.
        """
        ahead = [_items_ahead(single) for single in individual_loaders(self.loader)]
        if not self._opened_with or state["ahead"] == ahead:
            self._attributes.restore(state["attributes"])

    def _return_to(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Open an epoch with the state of its first opening, and return its iterator at a batch.

        Raises:
            DataError: the loader ends too early, or restored another position than its own.
        """
        self._opened_with = dict(state["opened_with"])
        self._restored_position = state.get("position")
        # found here: while the loader is opened, its sampler is another one, and so are the paths
        self._replayed_generators = self._generators()
        self._replayed_draws = state.get("draws", {})
        try:
            return self._open_at(epoch, num_done, state)
        finally:
            self._replayed_generators, self._replayed_draws = {}, None

    def _open_at(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Open an epoch at its loader's own position, or at its start, and go on from there.

        Raises:
            DataError: the loader ends too early, or restored another position than its own.
        """
        position = self._saved_position(state)
        self._has_lost_position = False
        if position is not None:
            self._restore_random_state()
            iterator = self._iterate_from(position, epoch, num_done, state)
            if iterator is not None:
                return iterator
            self._has_lost_position = True
            warn_of_lost_position(self.loader)
        self._positions.restore(self._opened_with.get("positions", []))
        self._restore_random_state()
        return self._iterate_after(epoch, num_done, state)

    def _saved_position(self, state: dict[str, Any]) -> dict[str, Any] | None:
        """Return the position to restore of a loader that keeps its own; None if there is none."""
        position: dict[str, Any] | None = state["position"]
        # if workers drew random numbers, the loader's own position is not enough: the random state
        # of workers starts with the epoch
        if (
            position is None
            or position["loader"] is None
            or not self._keeps_position
            or state.get("workers_have_drawn", True)
            or not holds_position(self.loader, position["loader"])
        ):
            return None
        return position

    def _restore_random_state(self) -> None:
        """Restore the random state with which the epoch was opened first."""
        rng.restore(self._opened_with["rng"])
        restore_generators(self._generators(), self._opened_with["generators"])
        self._attributes.restore(self._opened_with["attributes"])

    def _iterate_from(
        self, position: dict[str, Any], epoch: int, num_done: int, state: dict[str, Any]
    ) -> Iterator[Any] | None:
        """Open an epoch at a position of the loader's own, and load the batches up to `num_done`.

        Returns:
            The iterator; None if the last of these batches is another one than it was.
        """
        self.loader.load_state_dict(position["loader"])
        if self._sampler is not None:
            # with its first batch such a loader goes through its sampler up to the position, and
            # the random states are those of the position by then
            self._sampler.num_early = position["batches"] + _items_ahead(self.loader)
        try:
            iterator = self._iterate(epoch)
        except StopIteration:  # a loader that counts too far as it restores its position
            return None
        finally:
            if self._sampler is not None:
                self._sampler.num_early = 0
        rng.restore(position.get("rng") or state.get("rng_ahead") or self._opened_with["rng"])
        restore_generators(self._generators(), position.get("generators", {}))
        num_loaded = num_done - position["batches"]
        detector = DrawDetector(self._generators())
        last = next(islice(iterator, num_loaded - 1, num_loaded), _END) if num_loaded else None
        if last is _END or _is_other_batch(last, state):
            return None
        self.reloaded = last
        if num_loaded > 1 and self._sampler is None and detector.has_drawn:
            # None of these batches was seen to draw: the loader has drawn its order anew.
            return None
        if state.get("rng_ahead"):
            # the lookahead loaded its batch before the training drew its last random numbers
            rng.restore(state["rng_ahead"])
        return iterator

    def restore_between(self, state: dict[str, Any]) -> None:
        """Restore the state that the next epoch depends on, saved where no epoch was open.

        That is between two epochs, and inside one before its first batch or after its last.

        Raises:
            DataError: the loader restored another position than its own.
        """
        self._set_saved_epoch(state)
        has_changed = warn_of_changes(self.loader, state.get("shape", []))
        restore_sampler_seeds(self.loader, state.get("sampler_seeds", []))
        last_epoch = state.get("last_epoch", {})
        if last_epoch and self._keeps_position and not has_changed:
            self._go_through_end(last_epoch)
        else:
            self._positions.restore(state.get("positions", []))
        self.num_batches = state["num_batches"]
        restore_generators(self._generators(), state["generators"])
        self._restore_attributes(state)

    def _go_through_end(self, last_epoch: dict[str, Any]) -> None:
        """Load the last batches of the epoch before, so that the loader is where that ended.

        Unlike its state after that epoch, its position before the last batch can be checked.
        """
        num_done = last_epoch["num_done"]
        with rng.isolated():
            iterator = self._return_to(last_epoch["epoch"], num_done, last_epoch)
            for _ in range(last_epoch["num_fetched"] - num_done + last_epoch["is_exhausted"]):
                next(iterator, None)
        self._positions.mark_opened()
        self._opened_with, self._restored_position = {}, None
        self._last_epoch = last_epoch

    def close(self, *, is_complete: bool) -> None:
        """Close the current epoch.

        Args:
            is_complete: whether all its batches were fetched. A loader that keeps its own state is
                then iterated to its end, at which such loaders advance to the next epoch.
        """
        # with a limit, or if the epoch is ended early, the loader is not at its end, and iterating
        # on would load the rest of the epoch
        is_whole = self._size == number_of_batches(self.loader)
        if self._recorder is not None:
            num_done = self._num_taken()
            if is_complete and is_whole and num_done == self._size:
                # loaders with a state advance to the next epoch when their iterator is exhausted
                next(self._recorder, None)
            self._last_epoch = self._state_at_end(num_done)
        self._opened_with = {}
        self._draws = DrawRecorder()
        # dropped: a reference would keep the workers of the epoch alive
        self._lookahead = self._recorder = self._restored_position = None
        self.reloaded = None
        self.last.forget()

    def _state_at_end(self, num_done: int) -> dict[str, Any]:
        """Return the state for `_go_through_end`; empty if a position need not be checked there.

        Args:
            num_done: batches of the epoch that the training took.
        """
        assert self._recorder is not None
        position = self._recorder.position_before(num_done) or self._restored_position
        if (
            position is None
            or self._have_workers_drawn()
            # between epochs such a loader depends on generators alone, which the checkpoint holds
            or not depends_on_epochs(self.loader, position["loader"])
        ):
            return {}
        return {
            "epoch": self._epoch,
            "num_done": num_done,
            "num_fetched": self._recorder.num_fetched,
            "is_exhausted": self._recorder.is_exhausted,
            "num_batches": self.num_batches,
            "opened_with": self._opened_with,
            "position": position,
            "workers_have_drawn": False,
            LAST_DIGESTS: self.last.fingerprint,
            "draws": self._recorded_draws(),
        }

    def _num_taken(self) -> int:
        """Return how many batches of the epoch the training took from a stateful loader."""
        assert self._recorder is not None
        return self._recorder.num_fetched - self.is_ahead

    @property
    def is_ahead(self) -> bool:
        """Whether a batch was loaded that was not handed out yet."""
        return self._lookahead is not None and self._lookahead.is_ahead

    def end_epoch_after(self, num_done: int) -> None:
        """End the current epoch after `num_done` batches, at whatever position the loader is."""
        self.num_batches = num_done

    def release(self) -> None:
        """Drop all references to the loader, at the end of the run."""
        self.loader = self._opened_loader = ()
        self.reloaded = None
        self._positions, self._sampler = LoaderPositions(()), None
        self._attributes = PlainAttributes(())
        self._lookahead = self._recorder = None
        self.last.forget()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the loader's position and generators at the end of the context."""
        generators, num_batches = generator_states(self._generators()), self.num_batches
        positions, draws = self._positions.read(reads_unopened=True), self._draws
        attributes = self._attributes.changed()
        try:
            yield
        finally:
            self.num_batches, self._draws = num_batches, draws
            self._positions.restore(positions)
            # last: opening a loader at its position may draw from them
            restore_generators(self._generators(), generators)
            self._attributes.restore(attributes)

    @contextmanager
    def replayed(self, epoch: int) -> Iterator[Iterator[Any]]:
        """Yield an iterator over an epoch's batches once more, and restore the loader's state."""
        count = None if self.num_batches == math.inf else int(self.num_batches)
        with self.kept(), rng.isolated():
            set_epoch(self.loader, epoch)
            yield islice(reproducible_iterator(self.loader), count)

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
        position, rng_ahead = self._restored_position, None
        if self._recorder is not None:
            num_taken = self._num_taken()
            position = self._recorder.position_before(num_taken) or position
            if self._lookahead is not None:
                rng_ahead = self._recorder.random_state_at(num_taken - inside_batch)
        return {
            "opened_with": self._opened_with,
            "generators": generator_states(self._generators()),
            "attributes": self._attributes.changed(),
            "ahead": [_items_ahead(single) for single in individual_loaders(self.loader)],
            "sampler_seeds": sampler_seeds(self.loader),
            "position": position,
            "positions": [] if is_open else self._positions.read(),
            "last_epoch": {} if is_open else self._last_epoch,
            "num_batches": self.num_batches,
            "draws": self._recorded_draws() if is_open else {},
            # what a resume compares with its own loader
            "shape": describe_structure(self.loader),
            # the epoch of that structure
            "epoch": self._epoch,
            # the random state before the lookahead loaded its batch
            "rng_ahead": rng_ahead,
            # whether the positions of all batches are recorded, as they draw random numbers
            "records_all": self._recorder is not None and self._recorder.records_all,
            "workers_have_drawn": is_open and self._have_workers_drawn(),
            # the fingerprint of the last batch, which a resume compares; none of a batch not done
            LAST_DIGESTS: {} if inside_batch else self.last.fingerprint,
            # and that of its indices, for a batch that cannot be compared
            LAST_INDICES: {} if inside_batch else self._last_indices(),
        }

    def _last_indices(self) -> dict[str, list[int]]:
        """Return the fingerprint of the last batch's indices; empty where they are not recorded."""
        # a resume puts a recorder around torch's samplers too, and the files must be the same
        is_recorded = self._sampler is not None and self._sampler.make_recorder is not None
        if not is_recorded or not self._opened_with or _items_ahead(self.loader):
            return {}
        assert self._sampler is not None
        return fingerprint(self._sampler.item_before(self.is_ahead))

    def require_same(self, state: dict[str, Any]) -> None:
        """Check that the batches of an interrupted epoch can be found again.

        Raises:
            DataError: the loader differs; the message says how.
        """
        if state["opened_with"]:
            self._set_saved_epoch(state)
            require_same(self.loader, state, self._generators())

    def _set_saved_epoch(self, state: dict[str, Any]) -> None:
        """Set the epoch of the samplers when a state was saved: their length may follow it."""
        epoch = state["epoch"]  # None before the first epoch
        if epoch is not None:
            set_epoch(self.loader, epoch)
            self._epoch = epoch

    def _iterate(self, epoch: int) -> Iterator[Any]:
        """Open the loader for an epoch and return its iterator."""
        # before the loader is opened: samplers draw their order as they are iterated
        set_epoch(self.loader, epoch)
        self._epoch = epoch
        self._num_opened = 0
        self.num_batches = self._size
        self._lookahead = self._recorder = None
        if (
            has_indices(self.loader)
            or self._keeps_position
            or isinstance(self.loader, list | tuple)
        ):
            return reproducible_iterator(self._opened_loader)
        recorder = self._make_recorder()
        if isinstance(self.loader, CombinedLoader):
            return recorder.items(partial(self.loader.iterate, recorder.step))
        return recorder.items(partial(reproducible_iterator, self.loader))

    def _make_recorder(self) -> DrawRecorder:
        """Return a recorder of the epoch's draws, from which a resume draws again."""
        self._num_opened += 1
        draws = self._replayed_draws or {}
        if self._replayed_draws is not None and self._keeps_position:
            # such a loader opens its sampler once more to go to a position
            restore_generators(self._replayed_generators, self._opened_with["generators"])
        elif draws.get("opened") != self._num_opened:
            # torch opens the sampler of a loader with workers twice.
            draws = {}
        self._draws = DrawRecorder(draws)
        return self._draws

    def _recorded_draws(self) -> dict[str, Any]:
        """Return the state with which a resume draws again; empty if nothing was drawn."""
        draws = self._draws.state_dict()
        if draws and not self._keeps_position:
            # any other loader opens its sampler as often as it takes to go to a position
            draws["opened"] = self._num_opened
        return draws

    def _iterate_after(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Open an epoch and skip its first batches, without loading them where possible.

        The last of them is loaded to compare it. With workers, as many batches are loaded as it
        takes for each later batch to be loaded by the worker that would have loaded it in the
        interrupted run.
        """
        if not num_done:
            return self._iterate(epoch)
        workers = getattr(self.loader, "num_workers", 0)
        workers_drew = state.get("workers_have_drawn", True)
        if self._keeps_position:
            return self._load_and_drop(epoch, num_done, state)
        if not has_indices(self.loader) or (workers and workers_drew):
            iterator = self._iterate(epoch)
            self.reloaded = last = skip_items(iterator, num_done, self._reason_for_loading())
            compare_last(self.loader, last, state, self._positions.restored_loaders)
            return iterator
        if self._sampler is None:
            self._replace_sampler()
        assert self._sampler is not None
        # batch i is loaded by worker i % workers, so a multiple of `workers` is skipped
        num_loaded = (num_done - 1) % max(workers, 1) + 1
        detector = DrawDetector(self._generators())
        self._sampler.skip_first = partial(skip_items, count=num_done - num_loaded)
        self._sampler.on_first_item = detector.restart
        iterator = self._iterate(epoch)
        # only the iterator made above skips; workers of later epochs start at the beginning
        self._sampler.skip_first = bool
        last = skip_items(iterator, num_loaded, "the last one is compared with what it was")
        self.reloaded = last
        self._sampler.on_first_item = bool
        # if loading draws random numbers, this batch got other ones than in the interrupted run. A
        # data set that counts its samples did not count those that were skipped
        has_drawn = self._have_workers_drawn() if workers else detector.has_drawn
        if not has_drawn and not (
            _is_other_batch(last, state)
            and has_data_moved(self._opened_with.get("attributes", {}), state.get("attributes", {}))
        ):
            compare_last(self.loader, last, state)
        elif not workers:
            compare_indices(self.loader, self._sampler.item_before(0), state)
        return iterator

    def _load_and_drop(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:
        """Open an epoch of a loader that keeps its own position; load and drop its first batches.

        The training draws random numbers while such a loader does. So the last batch is loaded with
        the random state that it had, if the checkpoint holds that.
        """
        iterator = self._iterate(epoch)
        reason = self._reason_for_loading()
        if num_done > 1:
            skip_items(iterator, num_done - 1, reason)
        position = state.get("position") or {}
        is_known = num_done == 1 or position.get("batches") == num_done - 1
        if num_done > 1 and is_known:
            rng.restore(position["rng"])
            restore_generators(self._generators(), position["generators"])
        detector = DrawDetector(self._generators())
        self.reloaded = last = skip_items(iterator, 1, reason)
        if is_known or not detector.has_drawn:
            restored_loaders = self._positions.restored_loaders
            if self._has_lost_position:
                restored_loaders = [self.loader]
            compare_last(self.loader, last, state, restored_loaders)
        if state.get("rng_ahead"):
            rng.restore(state["rng_ahead"])
        return iterator

    def _replace_sampler(self) -> None:
        """Open a copy of the loader from now on, whose sampler can skip items.

        Draws are recorded of samplers that are not torch's.
        """
        name = "sampler" if self.loader.batch_sampler is None else "batch_sampler"
        self._sampler = RecordedSampler(getattr(self.loader, name))
        if _has_custom_sampler(self.loader):
            self._sampler.make_recorder = self._make_recorder
        self._opened_loader = copy_loader(self.loader, **{name: self._sampler})

    def _reason_for_loading(self) -> str:
        """Return why batches must be loaded to be skipped."""
        if self._keeps_position:
            return "its own state does not lead to them"
        if has_indices(self.loader):
            return "its workers draw random numbers, which depend on what they loaded before"
        if isinstance(self.loader, CombinedLoader):
            return "several loaders are combined"
        if isinstance(self.loader, DataLoader) and type(self.loader) is not DataLoader:
            return f"a {type(self.loader).__qualname__} may do anything in its iterator"
        return "only by going through an iterable a place in it is found"

    def _observe(
        self, iterator: Iterator[Any], num_done: int, *, records_all: bool
    ) -> Iterator[Any]:
        """Return the iterator, wrapped or remembered as the type of the loader requires."""
        if self._keeps_position:
            self._recorder = iterator = PositionRecorder(
                self.loader, iterator, num_done, self._generators(), records_all=records_all
            )
        if self.looks_ahead:
            self._lookahead = iterator = LookaheadIterator(
                iterator, num_done, partial(setattr, self, "num_batches")
            )
        return iterator

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


class AwaitedStream(TrainStream):
    """The stream of a loop that the user writes, until it hands over its loader.

    It keeps the position of a checkpoint for the stream that takes its place.

    Attributes:
        position: the state of a stream; empty without a checkpoint.
    """

    def __init__(self) -> None:
        super().__init__(_unsized())
        self.position: dict[str, Any] = {}

    def reopen(self, epoch: int, num_done: int, state: dict[str, Any]) -> Iterator[Any]:  # noqa: ARG002
        """Keep the position; the loader that comes is opened at it."""
        self.restore_between(state)
        return iter(())

    def restore_between(self, state: dict[str, Any]) -> None:
        """Keep the position; the loader that comes is opened at it."""
        self.position = state
        self.num_batches = state["num_batches"]

    def require_same(self, state: dict[str, Any]) -> None:
        """Do nothing: the loader that comes is compared with the state."""

    def state_dict(self, *, inside_batch: bool = False) -> dict[str, Any]:
        """Return the position as it was restored, or that of a loader that was never opened."""
        return self.position or super().state_dict(inside_batch=inside_batch)


def _unsized() -> Iterator[Any]:
    yield from ()


class LoaderPositions:
    """States of loaders that keep their own position, at the start and the end of epochs.

    Args:
        loader: the training loader, alone or combined.

    Attributes:
        restored_loaders: the loaders that had a state to restore.
    """

    def __init__(self, loader: Any) -> None:
        self._loaders = [single for single in individual_loaders(loader) if has_state(single)]
        self._has_been_opened = False
        self._restored: list[Any] = []
        self.restored_loaders: list[Any] = []

    def mark_opened(self) -> None:
        """Record that the loaders were opened, so that they have a position."""
        self._has_been_opened = True
        self._restored = []

    def read(self, *, reads_unopened: bool = False) -> list[Any]:
        """Return the states with which the next epoch begins; None for a new loader.

        Args:
            reads_unopened: whether new loaders are asked for their state. A resume has new ones
                too, and needs none; those of torchdata would start their workers to answer.
        """
        if self._restored:
            return self._restored
        return [
            # a copy: the loader may go on to change the object that it returned
            deepcopy(loader.state_dict())
            if self._has_been_opened or (reads_unopened and not is_torchdata_loader(loader))
            else None
            for loader in self._loaders
        ]

    def restore(self, states: list[Any]) -> None:
        """Restore the states that `read` returned, to open that epoch."""
        self._restored = list(states)
        self.restored_loaders = []
        for loader, state in zip(self._loaders, states, strict=False):
            if state is not None and holds_position(loader, state):
                self.restored_loaders.append(loader)
                loader.load_state_dict(state)
                if is_torchdata_loader(loader):
                    # the interrupted run had an iterator, so its next epoch starts after it
                    with rng.isolated():
                        go_to_position(loader)


_RECORDED_FIRST = 4
"""Number of first batches of an epoch for which it is observed whether they draw."""
_RECORD_EVERY = 32
"""Batches between two recorded positions of a loader that draws no random numbers as it loads."""


class PositionRecorder:
    """Yield the batches of a loader that keeps its own position, and record positions before them.

    A position is recorded before a batch, so that a resume can load that batch again and compare
    it. Reading a state may take longer than a batch, so only some positions are recorded. Batches
    that draw random numbers in this process can be compared only if they are loaded with the same
    ones again; if any are seen to draw, every position is recorded.

    Args:
        loader: the loader.
        iterator: its batches.
        num_done: batches of the epoch that are done.
        generators: the random generators that the loader holds, by path.
        records_all: whether every position is recorded from the start.

    Attributes:
        records_all: whether every position is recorded from now on.
        num_fetched: batches of the epoch that were fetched.
        is_exhausted: whether the iterator has ended.
    """

    def __init__(
        self,
        loader: Any,
        iterator: Iterator[Any],
        num_done: int,
        generators: Mapping[str, StatefulGenerator],
        *,
        records_all: bool,
    ) -> None:
        self._loader = loader
        self._iterator = iterator
        self._generators = generators
        self.records_all = records_all
        self._holds_position = True
        self.num_fetched = num_done
        self.is_exhausted = False
        self._next_recorded = num_done if records_all else _next_recorded(num_done)
        # three: of the batch that was fetched last, the one before it and, where the lookahead
        # holds a batch, the one before that
        self._positions: deque[dict[str, Any]] = deque(maxlen=3)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.num_fetched < self._next_recorded:
            batch = next(self._iterator, _END)
        else:
            batch = self._record_and_fetch()
        if batch is _END:
            self.is_exhausted = True
            raise StopIteration
        self.num_fetched += 1
        return batch

    def position_before(self, num_taken: int) -> dict[str, Any] | None:
        """Return the newest recorded position before the last of `num_taken` batches, or None."""
        earlier = [position for position in self._positions if position["batches"] < num_taken]
        return earlier[-1] if earlier else None

    def random_state_at(self, num_taken: int) -> dict[str, Any] | None:
        """Return the random state before the batch after `num_taken` was fetched, if recorded."""
        for position in self._positions:
            if position["batches"] == num_taken:
                state: dict[str, Any] = position["rng"]
                return state
        return None

    def _record_and_fetch(self) -> Any:
        """Record the present position, without a state that holds none, and fetch a batch."""
        state = None
        if self._holds_position:
            # a copy: the loader may go on to change the object that it returned
            state = deepcopy(self._loader.state_dict())
            if not holds_position(self._loader, state):
                state, self._holds_position = None, False
        self._positions.append(
            {
                "batches": self.num_fetched,
                "loader": state,
                "rng": rng.capture(),
                "generators": generator_states(self._generators),
            }
        )
        if self.records_all:
            return next(self._iterator, _END)
        detector = DrawDetector(self._generators)
        batch = next(self._iterator, _END)
        # the first batch does not count, as many loaders draw their order with it
        self.records_all = self.num_fetched > 0 and detector.has_drawn
        if not self.records_all:
            self._next_recorded = _next_recorded(self.num_fetched + 1)
        return batch


def _items_ahead(loader: Any) -> int:
    """Return how many items of its sampler a loader requests ahead of its batches."""
    return getattr(loader, "num_workers", 0) * (getattr(loader, "prefetch_factor", None) or 0)


def _next_recorded(number: int) -> int:
    """Return the index of the first batch, from `number` on, whose position is always recorded.

    It counts from the start of the epoch: a resumed run records the positions of the uncut run.
    """
    last_first = _RECORDED_FIRST - 1
    if number <= last_first:
        return number
    return last_first + math.ceil((number - last_first) / _RECORD_EVERY) * _RECORD_EVERY


def _is_other_batch(last: Any, state: dict[str, Any]) -> bool:
    """Return whether a batch differs from the last one before a checkpoint was saved."""
    return bool(differing_part(state.get(LAST_DIGESTS, {}), fingerprint(last)))


class LookaheadIterator:
    """Yield batches one late, so that the last batch is known to be the last.

    Args:
        iterator: the batches.
        num_done: batches of the epoch that are done.
        on_size_known: called with the number of batches once it is known.
    """

    def __init__(
        self, iterator: Iterator[Any], num_done: int, on_size_known: Callable[[int], None]
    ) -> None:
        self._iterator = iterator
        self._num_taken = num_done
        self._on_size_known = on_size_known
        self._next_batch = next(iterator, _END)
        # resumed after the last batch: the length of the epoch is known at once
        if self._next_batch is _END and num_done:
            on_size_known(num_done)

    @property
    def is_ahead(self) -> bool:
        """Whether a batch was fetched that was not handed out yet."""
        return self._next_batch is not _END

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._next_batch
        if batch is _END:
            raise StopIteration
        self._next_batch = next(self._iterator, _END)
        self._num_taken += 1
        if self._next_batch is _END:
            self._on_size_known(self._num_taken)
        return batch


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
        # reading the clock costs more than skipping an index, so it is read every 1024 indices
        if (loads_batches or number % 1024 == 0) and monotonic() > next_log:
            message = "resuming: %s batches, %s of %s done in %.0f s%s"
            log.warning(
                message, action, f"{number + 1:,}", f"{count:,}", monotonic() - started, reason
            )
            next_log = monotonic() + _NEXT_LOG_S
    return item


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


def _has_custom_sampler(loader: DataLoader[Any]) -> bool:
    """Return whether the order of a loader comes from a class that is not torch's."""
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        return True
    # by the exact class: a subclass may draw its order item by item
    return type(loader.sampler) not in _TORCH_SAMPLERS


class DrawDetector:
    """Detect whether random numbers were drawn, globally on the host or from given generators.

    Args:
        generators: the generators by path.
    """

    def __init__(self, generators: Mapping[str, StatefulGenerator]) -> None:
        self._generators = generators
        self.restart()

    def restart(self) -> None:
        """Start again: detect only draws from now on."""
        states = generator_states(self._generators)
        self._digests = {path: fingerprint(state) for path, state in states.items()}
        self._random_state = rng.host_random_state()

    @property
    def has_drawn(self) -> bool:
        """Whether a number was drawn since the start; asking starts again."""
        digests, random_state = self._digests, self._random_state
        self.restart()
        return self._digests != digests or rng.has_drawn_since(random_state)
