"""Worker processes of a DataLoader: their random numbers, and whether they drew any."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader

from trainer_hooks.data.generators import (
    KeptGenerator,
    draw_salt,
    generator_states,
    generators_in,
    reseed,
    restore_generators,
)
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["has_state", "have_drawn", "iterator_of"]

_SEED, _DREW, _STARTED = range(3)
_KEEP = -1
"""In place of a seed: the workers keep the random numbers that torch gave them."""


def has_state(loader: Any) -> bool:
    """Return whether a loader can save its own position and come back to it."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def iterator_of(loader: Any) -> Iterator[Any]:
    """Return `iter(loader)`, which gives the same in a resumed run, whenever workers are started.

    Workers that are started for each epoch have the random numbers that torch gives them.
    Persistent ones go on for as long as their process lives, which a resume could not repeat, so
    they are seeded anew at the start of each epoch, from a number that is drawn here; so are those
    of a loader that keeps its own position, which starts workers where it comes back to it.
    """
    keeps_position = has_state(loader)
    if not isinstance(loader, DataLoader) or not (loader.num_workers or keeps_position):
        return iter(loader)
    if keeps_position:
        return _stateful_iterator(loader)
    watch = _watch_of(loader)
    if not loader.persistent_workers:
        with _begun(loader, watch, _KEEP):
            return iter(loader)
    own = loader.generator
    with _begun(loader, watch, rng.draw_seed()), _sampler_begun_late(loader):
        # what `worker_init_fn` finds must not depend on the epoch that the workers are started in
        loader.generator = torch.Generator().manual_seed(torch.initial_seed() % 2**32)
        try:
            return iter(loader)
        finally:
            loader.generator = own


def have_drawn(loader: Any) -> bool:
    """Return whether the workers drew random numbers in this epoch; True if that is not known.

    Where they did not, what they load depends on the index alone.
    """
    watch = _watches.get(loader) if isinstance(loader, DataLoader) else None
    return watch is None or watch.has_drawn


class WorkerWatch:
    """A `worker_init_fn` around the loader's own: seeds a worker, and notes whether it draws.

    Args:
        init_fn: the loader's own, or None.
    """

    def __init__(self, init_fn: Callable[[int], None] | None) -> None:
        self._init_fn = init_fn
        self._shared = torch.zeros(3, dtype=torch.int64)
        self._shared.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def has_drawn(self) -> bool:
        """Whether a worker drew random numbers since `begin`; True if none could be watched."""
        return bool(self._shared[_DREW]) or not self._shared[_STARTED]

    def begin(self, seed: int) -> None:
        """Say what the workers' random numbers are in the epoch that begins."""
        self._shared[_SEED] = seed
        self._shared[_DREW] = 0

    def __call__(self, worker_id: int) -> None:
        """Set a worker up, in its process."""
        if self._init_fn is not None:
            self._init_fn(worker_id)
        _WatchedWorker(self._shared).take_over()


class _WatchedWorker:
    """Seeds this worker process at the start of each epoch, and notes whether it draws."""

    def __init__(self, shared: torch.Tensor) -> None:
        self._shared = shared
        self._kept: dict[str, KeptGenerator] | None = None
        # what tells this worker's random numbers from those of others, in every epoch
        self._salts: tuple[int, int, int] | None = None
        self._kept_salts: list[int] = []
        self._seen: Any = None
        self._create_fetcher: Any = None

    def take_over(self) -> None:
        """Be called wherever torch's worker begins an epoch.

        That is where it makes the object which fetches batches. There is no other way to learn of
        it: what is sent to a worker as an epoch begins reaches nothing of the user's.
        """
        from torch.utils.data import _DatasetKind

        if int(self._shared[_SEED]) != _KEEP:
            self._salts = _draw_salts()
        self._create_fetcher = _DatasetKind.create_fetcher
        _DatasetKind.create_fetcher = staticmethod(self.begin_epoch)  # type: ignore[method-assign]
        self._shared[_STARTED] = 1

    def begin_epoch(self, *arguments: Any) -> Any:
        """Return a fetcher that is watched, its random numbers being those of the epoch."""
        seed = int(self._shared[_SEED])
        if self._kept is None:
            # of the data set, and of the function that collates
            self._kept = generators_in({"worker": arguments})
            if self._salts is not None:
                self._kept_salts = [draw_salt(generator) for generator in self._kept.values()]
        if self._salts is not None and seed != _KEEP:
            _seed_all(seed, self._salts)
            for generator, salt in zip(self._kept.values(), self._kept_salts, strict=True):
                reseed(generator, salt + seed)
        fetcher = self._create_fetcher(*arguments)
        if self._kept:
            # whether those are drawn from cannot be told cheaply
            self._shared[_DREW] = 1
        self._seen = rng.moment()
        fetcher.fetch = partial(self._fetch, fetcher.fetch)
        return fetcher

    def _fetch(self, fetch: Callable[[Any], Any], index: Any) -> Any:
        batch = fetch(index)
        if not self._shared[_DREW]:
            self._shared[_DREW] = rng.has_moved_since(self._seen)
        return batch


_watches: WeakKeyDictionary[DataLoader[Any], WorkerWatch] = WeakKeyDictionary()
"""The watch that a loader's workers were started with: persistent ones keep theirs."""


def _watch_of(loader: DataLoader[Any]) -> WorkerWatch:
    watch = _watches.get(loader)
    if watch is None:
        watch = _watches[loader] = WorkerWatch(loader.worker_init_fn)
    return watch


def _stateful_iterator(loader: DataLoader[Any]) -> Iterator[Any]:
    """Open a loader that keeps its position: what is drawn then depends on where it comes from."""
    is_first = loader not in _watches
    watch, seed = _watch_of(loader), rng.draw_seed()
    with _begun(loader, watch, seed), rng.OwnNumbers(seed):
        if not (is_first and loader.persistent_workers) or _has_to_continue(loader):
            return iter(loader)
        # the first iterator draws its order twice, those that follow with the same workers once
        kept = generators_in({"sampler": loader.sampler})
        states = generator_states(kept)
        iter(loader)
        restore_generators(kept, states)
        return iter(loader)


def _has_to_continue(loader: DataLoader[Any]) -> bool:
    """Return whether a loader of torchdata's was given a position that it has not taken up yet."""
    return getattr(loader, "next_iter_state", None) is not None


@contextmanager
def _begun(loader: DataLoader[Any], watch: WorkerWatch, seed: int) -> Iterator[None]:
    """Let workers that are started inside be watched, and have this seed."""
    watch.begin(seed)
    if loader.num_workers == 0:
        yield
        return
    own, loader.worker_init_fn = loader.worker_init_fn, watch
    try:
        yield
    finally:
        loader.worker_init_fn = own


@contextmanager
def _sampler_begun_late(loader: DataLoader[Any]) -> Iterator[None]:
    """Let the sampler of an iterator that is made inside be begun when an index is asked for.

    torch begins that of persistent workers twice as they are started, and once in later epochs.
    """
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    own = vars(loader)[name]
    vars(loader)[name] = _BegunLate(own)
    try:
        yield
    finally:
        vars(loader)[name] = own


class _BegunLate:
    """A sampler whose iterators ask for its own no sooner than they are asked for an index."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        yield from self._sampler

    def __len__(self) -> int:
        return len(self._sampler)


def _draw_salts() -> tuple[int, int, int]:
    """Draw a number from each of Python's, torch's and NumPy's global random numbers."""
    numpy = sys.modules.get("numpy")
    drawn = 0 if numpy is None else int(numpy.random.randint(2**32, dtype="uint64"))
    return random.getrandbits(32), rng.draw_seed(), drawn


def _seed_all(seed: int, salts: tuple[int, int, int]) -> None:
    random.seed(salts[0] + seed)
    torch.manual_seed(salts[1] + seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed((salts[2] + seed) % 2**32)
