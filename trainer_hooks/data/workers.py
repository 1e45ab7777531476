"""Control and monitor the random state of a DataLoader's worker processes."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks.data.draw_recorder import RecordedSampler
from trainer_hooks.data.generators import (
    StatefulGenerator,
    draw_salt,
    generator_states,
    generators_in,
    reseed,
    restore_generators,
)
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SEED, _HAS_DRAWN, _HAS_STARTED = range(3)
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
    # Another version may name them otherwise.
    return not states or any(part is not None for part in states)


def _dataset_states(state: Any) -> Iterator[Any]:
    """Yield the states of the data set and its iterator, of each worker, in torchdata's state."""
    if isinstance(state, dict):
        for name, part in state.items():
            if name in ("dataset_state", "dataset_iter_state"):
                yield part
            else:
                yield from _dataset_states(part)


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
    """

    def __init__(self, init_fn: Callable[[int], None] | None) -> None:
        self._init_fn = init_fn
        self._shared = torch.zeros(3, dtype=torch.int64)
        # Written here, read in the workers: shared memory needs no message through torch's queues.
        self._shared.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def has_drawn(self) -> bool:
        """Whether a worker drew random numbers since `start_epoch`; True if none was monitored."""
        return bool(self._shared[_HAS_DRAWN]) or not self._shared[_HAS_STARTED]

    def start_epoch(self, seed: int) -> None:
        """Set the seed of the epoch that begins."""
        # set before the workers start, or before they are told to resume: they read it then
        self._shared[_SEED] = seed
        self._shared[_HAS_DRAWN] = 0

    def __call__(self, worker_id: int) -> None:
        """Set up a worker, in its process."""
        # The user's first: it may seed the generators from which the salts are drawn.
        if self._init_fn is not None:
            self._init_fn(worker_id)
        _MonitoredWorker(self._shared).hook_into_torch()


class _MonitoredWorker:
    """Seed this worker process at the start of each epoch, and detect whether it draws."""

    def __init__(self, shared: torch.Tensor) -> None:
        self._shared = shared
        self._generators: dict[str, StatefulGenerator] | None = None
        # Drawn once per worker from Python, torch and NumPy; added to the epoch's seed, they make
        # workers differ in each epoch.
        self._salts: tuple[int, int, int] | None = None
        self._generator_salts: list[int] = []
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
        self._create_fetcher = _DatasetKind.create_fetcher
        # Patched in the worker process only, where no other loader exists.
        _DatasetKind.create_fetcher = staticmethod(self.begin_epoch)  # type: ignore[method-assign]
        self._shared[_HAS_STARTED] = 1

    def begin_epoch(self, *arguments: Any) -> Any:
        """Seed the worker for the epoch and return a fetcher that detects draws."""
        seed = int(self._shared[_SEED])
        if self._generators is None:
            # Generators that the data set and the collate function hold.
            self._generators = generators_in({"worker": arguments})
            if self._salts is not None:
                self._generator_salts = [
                    draw_salt(generator) for generator in self._generators.values()
                ]
        if self._salts is not None and seed != _KEEP_TORCH_SEEDS:
            random.seed(self._salts[0] + seed)
            torch.manual_seed(self._salts[1] + seed)
            numpy = sys.modules.get("numpy")
            if numpy is not None:
                # NumPy's legacy generator takes seeds below 2**32 only.
                numpy.random.seed((self._salts[2] + seed) % 2**32)
            for generator, salt in zip(
                self._generators.values(), self._generator_salts, strict=True
            ):
                reseed(generator, salt + seed)
        fetcher = self._create_fetcher(*arguments)
        if self._generators:
            # Comparing their states for each batch would be slow, so count them as drawn from.
            self._shared[_HAS_DRAWN] = 1
        self._state_at_start = rng.host_random_state()
        fetcher.fetch = partial(self._fetch, fetcher.fetch)
        return fetcher

    def _fetch(self, fetch: Callable[[Any], Any], index: Any) -> Any:
        """Fetch a batch and record whether random numbers were drawn for it."""
        batch = fetch(index)
        # Once a draw is known, no states are read any more: that takes time for each batch.
        if not self._shared[_HAS_DRAWN]:
            self._shared[_HAS_DRAWN] = rng.has_drawn_since(self._state_at_start)
        return batch


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


def _stateful_iterator(loader: DataLoader[Any]) -> Iterator[Any]:
    """Open a loader that keeps its position; draws inside are repeatable."""
    sampler = stateful_sampler(loader) if is_torchdata_loader(loader) else None
    with nullcontext() if sampler is None else replaced_sampler(loader, lambda _: sampler):
        if not loader.num_workers:
            return iter(loader)
        is_first = loader not in _monitors
        monitor, seed = _monitor_of(loader), rng.draw_seed()
        with (
            _monitored_start(loader, monitor, seed),
            rng.SeparateRandomState(seed),
            _same_worker_seeds(loader) if loader.persistent_workers else nullcontext(),
        ):
            # This attribute of a torchdata loader is a position that it was given and has not used
            # yet.
            is_restored = getattr(loader, "next_iter_state", None) is not None
            # Opened twice, a stream with a state would lose the batches that workers load ahead.
            draws_twice = sampler is None and not isinstance(loader.dataset, IterableDataset)
            if not (is_first and loader.persistent_workers and draws_twice) or is_restored:
                return iter(loader)
            # torchdata's first iterator draws its order twice, and later ones with the same workers
            # once. Open it twice and restore the generators in between, so that both cases agree.
            generators = generators_in({"sampler": loader.sampler})
            states = generator_states(generators)
            iter(loader)
            restore_generators(generators, states)
            return iter(loader)


@contextmanager
def _monitored_start(loader: DataLoader[Any], monitor: WorkerMonitor, seed: int) -> Iterator[None]:
    """Let workers that start inside be monitored, with this seed."""
    monitor.start_epoch(seed)
    # For the start of workers only: afterwards the loader has the user's function again.
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
    # Through vars: DataLoader.__setattr__ refuses another sampler after construction.
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
