"""Control and monitor the random state of a DataLoader's worker processes."""

from __future__ import annotations

import multiprocessing
import random
import re
import sys
import traceback
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from trainer_hooks.data.draw_recorder import RecordedSampler
from trainer_hooks.data.generators import (
    StatefulGenerator,
    draw_salt,
    generator_states,
    generators_in,
    reseed,
    restore_generators,
)
from trainer_hooks.errors import error_message
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SEED, _HAS_DRAWN, _HAS_STARTED, _IS_DROPPED = range(4)
_WORKER_DEATH = re.compile(
    r"DataLoader worker \(pid\S* [\d, ]+\) "
    r"(?:is killed by signal: ([^.]+)|exited unexpectedly(?: with exit code (\d+))?)"
)

_KEEP_TORCH_SEEDS = -1
"""In place of a seed: the workers keep the random state that torch gave them."""


def has_state(loader: Any) -> bool:
    """Return whether a loader can save and restore its own position."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def is_torchdata_loader(loader: Any) -> bool:
    """Return whether a loader is a StatefulDataLoader of torchdata."""
    return isinstance(loader, DataLoader) and is_of_torchdata(loader)


def is_of_torchdata(part: Any) -> bool:
    """Return whether an object's class, or a base of it, is one of torchdata."""
    return any(cls.__module__.partition(".")[0] == "torchdata" for cls in type(part).__mro__)


def holds_position(loader: Any, state: Any) -> bool:
    """Return whether a state of a loader that keeps its own position leads back to it.

    torchdata's loader over an iterable data set without a state of its own loads and drops as many
    batches as it counted, and counts those a second time.
    """
    is_stream = isinstance(getattr(loader, "dataset", None), IterableDataset)
    return not is_stream or not is_torchdata_loader(loader) or _has_dataset_state(state)


def depends_on_epochs(loader: Any, state: Any) -> bool:
    """Return whether the state of a loader between two epochs may depend on the epochs before.

    torchdata's loader alone does not; but its data set or sampler may, if it has a state.
    """
    samplers = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    return (
        not is_torchdata_loader(loader)
        or any(map(has_state, samplers))
        or _has_dataset_state(state)
    )


def _has_dataset_state(state: Any) -> bool:
    """Return whether torchdata's state holds one of the data set or its iterator."""
    states = list(_dataset_states(state))
    # another version may name them otherwise
    return not states or any(part is not None for part in states)


def _dataset_states(state: Any) -> Iterator[Any]:
    """Yield the states of the data set and its iterator, of each worker, in torchdata's state."""
    if isinstance(state, dict):
        for name, part in state.items():
            if name in ("dataset_state", "dataset_iter_state"):
                yield part
            else:
                yield from _dataset_states(part)


def spawn_advice(error: BaseException) -> str:
    """Return the cure for workers that cannot start because they are not forked; empty for others.

    On Windows and macOS, and from Python 3.14 on Linux, a worker imports the script anew and gets a
    pickled copy of the data set.
    """
    frames = traceback.walk_tb(error.__traceback__)
    is_unpicklable = any(
        frame.f_globals.get("__name__") == "multiprocessing.reduction" for frame, _ in frames
    )
    # by its exit code 1 a worker ended with an exception; one that was killed has another
    has_ended = "exited unexpectedly with exit code 1." in f"{error} {error.__cause__}"
    if not is_unpicklable and (not has_ended or multiprocessing.get_start_method() == "fork"):
        return ""
    return (
        "the loader's worker processes are not forked: each imports the script anew, and gets a "
        "pickled copy of the data set and of collate_fn. Train under `if __name__ == '__main__':`, "
        "and define both at the top of a file that can be imported, not in a notebook, in a "
        "function or as a lambda; or pass num_workers=0"
    )


def explain_worker_death(error: BaseException) -> str:
    """Return the cause and the cure of torch's error of a worker that died; empty for others.

    torch raises it as a RuntimeError from its handler of SIGCHLD, in whatever hook or step the main
    process is at that moment, or as the next batch is fetched.
    """
    died = None
    cause: BaseException | None = error
    # an error of the fetch has that of the handler as its cause, which says how the worker ended
    while cause is not None:
        died = _WORKER_DEATH.search(error_message(cause)) or died
        cause = cause.__cause__
    if died is None:
        return ""
    signal_name, code = died.groups()
    memory = (
        "The system kills a process where memory runs out: take a smaller num_workers, "
        "prefetch_factor or batch size, or keep less in the data set."
    )
    look = "Pass num_workers=0 to see where it ends."
    if signal_name is not None:
        how = f"was ended by a signal ({signal_name})"
        cure = memory if signal_name.startswith("Killed") else look
    elif code is not None:
        how, cure = f"ended with exit code {code}", look
    else:  # torch found it gone before it was told of its end
        how, cure = "ended too early", f"{memory} {look}"
    return (
        f"a worker process of a DataLoader {how}. torch raises this wherever the main process is "
        "at that moment: a hook, callback or batch that is named here is not at fault, and a "
        f"checkpoint that was being written is not there. {cure}"
    )


def reproducible_iterator(loader: Any) -> Iterator[Any]:
    """Return `iter(loader)`, so that a resumed run gets the same batches whenever workers start.

    Workers that start anew for each epoch keep the random state that torch gives them. Persistent
    workers continue theirs for as long as the process lives, which a resume could not repeat. So
    they are seeded at the start of each epoch, with a number that is drawn here. So are workers of
    a loader that keeps its own position, as it starts them wherever it resumes.
    """
    keeps_position = has_state(loader)
    if not isinstance(loader, DataLoader) or not (loader.num_workers or keeps_position):
        return iter(loader)
    if keeps_position:
        return _stateful_iterator(loader)
    monitor = _monitor_of(loader)
    if not loader.persistent_workers:
        with _monitored_start(loader, monitor, _KEEP_TORCH_SEEDS):
            return iter(loader)
    with (
        _monitored_start(loader, monitor, rng.draw_seed()),
        replaced_sampler(loader, _LazilyStartedSampler),
        _same_worker_seeds(loader),
    ):
        return iter(loader)


def go_to_position(loader: DataLoader[Any]) -> None:
    """Open a loader of torchdata at the position that it was given, and drop the iterator.

    From a given position such a loader continues, and after an iterator it starts its next epoch.
    """
    _stateful_iterator(loader, is_dropped=True)


def have_workers_drawn(loader: Any) -> bool:
    """Return whether the workers drew random numbers in this epoch; True if that is not known.

    If they did not, a batch depends on its indices alone.
    """
    monitor = _monitors.get(loader) if isinstance(loader, DataLoader) else None
    return monitor is None or monitor.has_drawn


class WorkerMonitor:
    """A `worker_init_fn` that seeds a worker and detects draws, and calls the loader's own.

    Args:
        init_fn: the loader's own `worker_init_fn`, or None.

    Attributes:
        restored: for each worker that starts at a position of torchdata's, whether it had ended.
    """

    def __init__(self, init_fn: Callable[[int], None] | None) -> None:
        self._init_fn = init_fn
        self._shared = torch.zeros(4, dtype=torch.int64)
        # written here, read in the workers: shared memory needs no message through torch's queues
        self._shared.share_memory_()  # type: ignore[no-untyped-call]
        self.restored: dict[int, bool] = {}

    @property
    def has_drawn(self) -> bool:
        """Whether a worker drew random numbers since `start_epoch`; True if none was monitored."""
        return bool(self._shared[_HAS_DRAWN]) or not self._shared[_HAS_STARTED]

    def start_epoch(self, seed: int, *, is_dropped: bool = False) -> None:
        """Set the seed of the epoch that begins, and whether its iterator is dropped unused."""
        # set before the workers start, or before they are told to resume: they read it then
        self._shared[_SEED] = seed
        self._shared[_HAS_DRAWN] = 0
        self._shared[_IS_DROPPED] = is_dropped

    def __call__(self, worker_id: int) -> None:
        """Set up a worker, in its process."""
        # the user's first: it may seed the generators from which the salts are drawn
        if self._init_fn is not None:
            self._init_fn(worker_id)
        _MonitoredWorker(self._shared, self.restored.get(worker_id)).hook_into_torch()


class _MonitoredWorker:
    """Seed this worker process at the start of each epoch, and detect whether it draws.

    Args:
        shared: what the loader's process and its workers tell each other.
        had_ended: for a worker that starts at a position, whether it had ended there; else None.
    """

    def __init__(self, shared: torch.Tensor, had_ended: bool | None) -> None:
        self._shared = shared
        self._had_ended = had_ended
        self._generators: dict[str, StatefulGenerator] | None = None
        # drawn once per worker from Python, torch and NumPy; added to the epoch's seed, they make
        # workers differ in each epoch
        self._salts: tuple[int, int, int] | None = None
        self._generator_salts: dict[str, int] = {}
        self._state_at_start: Any = None
        self._create_fetcher: Any = None

    def hook_into_torch(self) -> None:
        """Have `begin_epoch` called whenever torch's worker loop starts an epoch.

        That is where the loop creates the object that fetches batches. There is no public way: the
        message that resumes a worker for a new epoch reaches no code of the user.
        """
        from torch.utils.data import _DatasetKind

        if int(self._shared[_SEED]) != _KEEP_TORCH_SEEDS:
            numpy = sys.modules.get("numpy")
            # uint64, since the default type has 32 bits on Windows.
            of_numpy = 0 if numpy is None else int(numpy.random.randint(2**32, dtype="uint64"))
            self._salts = random.getrandbits(32), rng.draw_seed(), of_numpy
            # here: torchdata restores the data set next, and with it perhaps its generators
            worker = get_worker_info()
            assert worker is not None
            self._find_generators({"dataset": worker.dataset})
        self._create_fetcher = _DatasetKind.create_fetcher
        # patched in the worker process only, where no other loader exists
        _DatasetKind.create_fetcher = staticmethod(self.begin_epoch)  # type: ignore[method-assign]
        self._shared[_HAS_STARTED] = 1

    def _find_generators(self, owners: dict[str, Any]) -> dict[str, StatefulGenerator]:
        """Return the generators that objects hold; draw a salt from each that is to be seeded."""
        generators = generators_in(owners)
        if self._salts is not None:
            for path in generators.keys() - self._generator_salts.keys():
                self._generator_salts[path] = draw_salt(generators[path])
        return generators

    def begin_epoch(self, *arguments: Any) -> Any:
        """Seed the worker for the epoch and return a fetcher that detects draws."""
        seed = int(self._shared[_SEED])
        if self._generators is None:
            # generators that the data set and the collate function hold
            self._generators = self._find_generators(
                {"dataset": arguments[1], "collate_fn": arguments[3]}
            )
        if self._salts is not None and seed != _KEEP_TORCH_SEEDS:
            random.seed(self._salts[0] + seed)
            torch.manual_seed(self._salts[1] + seed)
            numpy = sys.modules.get("numpy")
            if numpy is not None:
                # NumPy's legacy generator takes seeds below 2**32 only.
                numpy.random.seed((self._salts[2] + seed) % 2**32)
            for path, generator in self._generators.items():
                reseed(generator, self._generator_salts[path] + seed)
        had_ended, self._had_ended = self._had_ended, None
        if had_ended is None and self._shared[_IS_DROPPED]:
            # the data set may have a state, which the batches that are loaded ahead would change
            return _EndedFetcher(arguments[1], None)
        fetcher = self._create_fetcher(*arguments)
        if had_ended:
            return _EndedFetcher(fetcher.dataset, fetcher.dataset_iter)
        if self._generators:
            # comparing their states for each batch would be slow, so count them as drawn from
            self._shared[_HAS_DRAWN] = 1
        self._state_at_start = rng.host_random_state()
        fetcher.fetch = partial(self._fetch, fetcher, fetcher.fetch)
        return fetcher

    def _fetch(self, fetcher: Any, fetch: Callable[[Any], Any], index: Any) -> Any:
        """Fetch a batch and record whether random numbers were drawn for it."""
        try:
            batch = fetch(index)
        except StopIteration:
            fetcher.ended = True  # torch records it of batches alone, and not of single samples
            raise
        # once a draw is known, no states are read any more: that takes time for each batch
        if not self._shared[_HAS_DRAWN]:
            self._shared[_HAS_DRAWN] = rng.has_drawn_since(self._state_at_start)
        return batch


class _EndedFetcher:
    """A fetcher of torch's worker loop that gives no batch.

    torchdata has the stream of a restored worker read on, even if it had ended: one that is at the
    start of its next epoch by then would give batches of that epoch.

    Args:
        dataset: the worker's data set.
        dataset_iter: the iterator over it, if it is a stream.
    """

    def __init__(self, dataset: Any, dataset_iter: Any) -> None:
        self.dataset, self.dataset_iter = dataset, dataset_iter

    @property
    def ended(self) -> bool:
        """Whether the stream has ended; torchdata sets it to False in vain."""
        return True

    @ended.setter
    def ended(self, value: bool) -> None: ...

    def fetch(self, _: Any) -> Any:
        """Raise StopIteration, as at the end of a stream."""
        raise StopIteration


_monitors: WeakKeyDictionary[DataLoader[Any], WorkerMonitor] = WeakKeyDictionary()
"""Monitor of each loader's workers; persistent workers keep the one they started with."""


def _monitor_of(loader: DataLoader[Any]) -> WorkerMonitor:
    """Return the monitor of a loader's workers, made at the first call."""
    monitor = _monitors.get(loader)
    if monitor is None:
        monitor = _monitors[loader] = WorkerMonitor(loader.worker_init_fn)
    return monitor


_stateful_samplers: WeakKeyDictionary[DataLoader[Any], RecordedSampler] = WeakKeyDictionary()
"""The sampler with which each loader of torchdata is opened; persistent workers keep theirs."""


def stateful_sampler(loader: DataLoader[Any]) -> RecordedSampler | None:
    """Return the recorded sampler with which a loader of torchdata is opened.

    Such a loader draws the order of a sampler anew to return to a position in it.

    Returns:
        The sampler; None for a stream, and for a sampler that has a state or is of torchdata.
    """
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    # torchdata's batch sampler is as stateful as the sampler inside.
    parts = [getattr(sampler, "sampler", sampler), *([] if is_of_torchdata(sampler) else [sampler])]
    if isinstance(loader.dataset, IterableDataset) or any(
        has_state(part) or is_of_torchdata(part) for part in parts
    ):
        return None
    if loader not in _stateful_samplers:
        _stateful_samplers[loader] = RecordedSampler(sampler, is_lazy=True)
    return _stateful_samplers[loader]


def _stateful_iterator(loader: DataLoader[Any], *, is_dropped: bool = False) -> Iterator[Any]:
    """Open a loader that keeps its position; draws inside are repeatable.

    Args:
        loader: the loader.
        is_dropped: whether the iterator is dropped: its workers then load no batch of a new epoch.
    """
    sampler = stateful_sampler(loader) if is_torchdata_loader(loader) else None
    with nullcontext() if sampler is None else replaced_sampler(loader, lambda _: sampler):
        if not loader.num_workers:
            return iter(loader)
        is_first = loader not in _monitors
        monitor, seed = _monitor_of(loader), rng.draw_seed()
        # this attribute of a torchdata loader is a position that it was given and has not used yet
        position = getattr(loader, "next_iter_state", None)
        starts_again = not loader.persistent_workers and not is_dropped
        if position is None or (starts_again and position.get("_iterator_finished")):
            # the same call starts the workers of the position, and those of the next epoch
            monitor.restored = {}
        else:
            monitor.restored = _ended_workers(position)
        with (
            _monitored_start(loader, monitor, seed, is_dropped=is_dropped),
            rng.SeparateRandomState(seed),
            _same_worker_seeds(loader) if loader.persistent_workers else nullcontext(),
        ):
            draws_twice = sampler is None and not isinstance(loader.dataset, IterableDataset)
            if is_first and loader.persistent_workers and draws_twice and position is None:
                # torchdata's first iterator draws its order twice, and later ones with the same
                # workers once. Open it twice and restore the generators in between, so that both
                # cases agree.
                generators = generators_in({"sampler": loader.sampler})
                states = generator_states(generators)
                monitor.start_epoch(seed, is_dropped=True)
                iter(loader)
                monitor.start_epoch(seed, is_dropped=is_dropped)
                restore_generators(generators, states)
            return iter(loader)


def _ended_workers(position: dict[str, Any]) -> dict[int, bool]:
    """Return for each worker of a position of torchdata's whether its stream had ended."""
    states = position.get("_snapshot", {}).get("_worker_snapshots", {})
    return {
        state["worker_id"]: bool((state["fetcher_state"] or {}).get("fetcher_ended"))
        for state in states.values()
    }


@contextmanager
def _monitored_start(
    loader: DataLoader[Any], monitor: WorkerMonitor, seed: int, *, is_dropped: bool = False
) -> Iterator[None]:
    """Let workers that start inside be monitored, with this seed."""
    monitor.start_epoch(seed, is_dropped=is_dropped)
    # for the start of workers only: afterwards the loader has the user's function again
    original, loader.worker_init_fn = loader.worker_init_fn, monitor
    try:
        yield
    finally:
        loader.worker_init_fn = original


@contextmanager
def _same_worker_seeds(loader: DataLoader[Any]) -> Iterator[None]:
    """Let workers start with the same seeds in whatever epoch they start.

    `worker_init_fn` sees these seeds, and persistent workers draw their salts from them.
    """
    original = loader.generator
    loader.generator = torch.Generator().manual_seed(torch.initial_seed() % 2**32)
    try:
        yield
    finally:
        loader.generator = original


@contextmanager
def replaced_sampler(loader: DataLoader[Any], wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Let a loader have `wrap(sampler)` in place of its batch sampler, or of its only sampler."""
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    original = vars(loader)[name]
    # through vars: DataLoader.__setattr__ refuses another sampler after construction
    vars(loader)[name] = wrap(original)
    try:
        yield
    finally:
        vars(loader)[name] = original


class _LazilyStartedSampler:
    """A sampler whose iterators start the real sampler when the first index is requested.

    torch iterates over the sampler twice as persistent workers start, and once in later epochs.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        yield from self._sampler

    def __len__(self) -> int:
        return len(self._sampler)
