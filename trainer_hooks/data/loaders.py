"""Loaders: count their batches, tell one from several, copy one with another sampler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, SubsetRandomSampler

from trainer_hooks.errors import DataError
from trainer_hooks.runtime import rng

__all__ = [
    "CombinedLoader",
    "as_eval_loaders",
    "as_train_loader",
    "copy_loader",
    "generators_of",
    "has_state",
    "iterator_of",
    "limited",
    "no_batch",
    "number_of_batches",
    "set_epoch",
    "shape_of",
    "shortage",
    "without_shuffling",
]

_MODES = ("max_size_cycle", "min_size", "max_size")


class CombinedLoader:
    """Take one batch of each of several loaders at a time.

    Args:
        loaders: a list or dict of loaders; a batch is then a list or dict of their batches.
        mode: what happens when a loader ends: `"max_size_cycle"` starts it again until the longest
            has ended, `"min_size"` ends with the shortest, `"max_size"` gives None in its place.
    """

    def __init__(
        self, loaders: Sequence[Any] | Mapping[str, Any], mode: str = "max_size_cycle"
    ) -> None:
        if mode not in _MODES:
            raise DataError(f"CombinedLoader(mode={mode!r}): must be one of {', '.join(_MODES)}.")
        if not loaders:
            raise DataError("CombinedLoader was given no loader: it needs at least one.")
        self.loaders = loaders
        self.mode = mode

    @property
    def flattened(self) -> list[Any]:
        """The loaders in a list."""
        return list(self.loaders.values() if isinstance(self.loaders, Mapping) else self.loaders)

    def __len__(self) -> int:
        sizes = [number_of_batches(loader) for loader in self.flattened]
        size = min(sizes) if self.mode == "min_size" else max(sizes)
        if size == math.inf:
            raise TypeError("a combined loader has no length where one of its loaders has none")
        return int(size)

    def __iter__(self) -> Iterator[Any]:
        iterators = [iterator_of(loader) for loader in self.flattened]
        ended = [False] * len(iterators)
        # a loader that starts again must not draw from the run's random numbers: how far those are
        # by then depends on the training, and a resume could not find its order again
        seed = int(torch.randint(_MAX_SEED, ())) if self.mode == "max_size_cycle" else 0
        while True:
            batches: list[Any] = []
            for position, loader in enumerate(self.flattened):
                batch = next(iterators[position], _END)
                if batch is _END:
                    ended[position] = True
                    if self.mode == "min_size" or all(ended):
                        return
                    batch = None
                    if self.mode == "max_size_cycle":
                        seed = (seed + 1) % _MAX_SEED
                        with rng.isolated():
                            rng.reseed(seed)
                            iterators[position] = iterator_of(loader)
                            batch = next(iterators[position], _END)
                        if batch is _END:
                            raise DataError(
                                f"loader {loader!r} of a CombinedLoader gives no batch: it cannot "
                                "be repeated until the longest has ended. Leave it out, or give a "
                                "loader that can be iterated more than once."
                            )
                batches.append(batch)
            if isinstance(self.loaders, Mapping):
                yield dict(zip(self.loaders, batches, strict=True))
            else:
                yield batches


_END = object()
_MAX_SEED = 2**32


def iterator_of(loader: Any) -> Iterator[Any]:
    """Return `iter(loader)`, which draws the same random numbers in every epoch.

    A DataLoader draws the seed of its workers when it starts them. Persistent ones are started once
    in a process, so in the first epoch of a run and in the first after a resume: that seed comes
    from elsewhere.
    """
    if not getattr(loader, "persistent_workers", False):
        return iter(loader)
    own = loader.generator
    loader.generator = Generator().manual_seed(torch.initial_seed() % _MAX_SEED)
    try:
        return iter(loader)
    finally:
        loader.generator = own


def has_state(loader: Any) -> bool:
    """Return whether a loader can save its own position and come back to it."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def shape_of(loader: Any) -> list[dict[str, int | float | None]]:
    """Return what is known of the size of a loader, or of each of several, to tell a change."""
    found = []
    for single in loader.flattened if isinstance(loader, CombinedLoader) else [loader]:
        size = number_of_batches(single)
        batch_size = getattr(single, "batch_size", None)
        if batch_size is None:
            batch_size = getattr(getattr(single, "batch_sampler", None), "batch_size", None)
        samples = number_of_batches(getattr(single, "dataset", None))
        found.append(
            {
                "number of batches": None if size == math.inf else size,
                "batch_size": batch_size if isinstance(batch_size, int) else None,
                "number of samples": None if samples == math.inf else samples,
            }
        )
    return found


def number_of_batches(loader: Any) -> int | float:
    """Return how many batches a loader has, or infinity where it cannot say."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return math.inf


def no_batch(what: str, loader: Any) -> str:
    """Return the message for a loader that gave nothing; `what` is how it is spoken of."""
    if hasattr(loader, "__next__"):
        return (
            f"{what} gave no batch: {loader!r} is an iterator, which can be gone through only once."
            " Pass what begins anew each time, such as a DataLoader or a list."
        )
    return (
        f"{what} gave no batch: {loader!r} must give at least one each time it is iterated. Check "
        "the length of its data, and drop_last."
    )


def limited(size: int | float, limit: int | float, option: str) -> int | float:
    """Return how many of `size` batches a `limit_*_batches` option lets through.

    Raises:
        DataError: a fraction of an unknown number, or one that leaves not even one batch.
    """
    if isinstance(limit, int) or limit == 0.0:
        return min(size, int(limit))
    if limit == 1.0:
        return size
    if size == math.inf:
        raise DataError(
            f"Trainer({option}={limit!r}) asks for a fraction of a loader that has no length: give "
            f"a number of batches as an int, such as {option}=100, or give the loader a __len__."
        )
    count = int(size * limit)
    if count == 0 < size:
        raise DataError(
            f"Trainer({option}={limit!r}) leaves none of the {size} batches of a loader: a share "
            f"must leave at least one. Use {option}={1 / size:.2g} or more, or 1 for one batch."
        )
    return count


def shortage(loader: Any, kind: str, given: int) -> str:
    """Return how to report that a loader gave fewer batches than its length says."""
    return (
        f"the {kind} loader {loader!r} ended after {given} batches, but its length is "
        f"{number_of_batches(loader)}: a StopIteration that its data set raises ends it, too. Mend "
        "its __len__, or what it loads."
    )


def as_train_loader(source: Any) -> Any:
    """Return one loader: several in a list or dict are combined.

    Raises:
        DataError: it cannot be iterated, or one of several cannot.
    """
    if isinstance(source, Mapping):
        return CombinedLoader({name: _iterable(item, "training") for name, item in source.items()})
    if _is_several(source):
        return CombinedLoader([_iterable(item, "training") for item in source])
    return _iterable(source, "training")


def as_eval_loaders(source: Any, kind: str) -> list[Any]:
    """Return a list of loaders, to be run one after another."""
    if isinstance(source, CombinedLoader):
        return source.flattened
    if isinstance(source, Mapping):
        return [_iterable(loader, kind) for loader in source.values()]
    if _is_several(source):
        return [_iterable(loader, kind) for loader in source]
    return [_iterable(source, kind)]


def _is_several(source: Any) -> bool:
    """Return whether a list holds loaders, and is not itself a loader: a list of batches."""
    if not isinstance(source, list | tuple) or not source:
        return False
    return any(isinstance(item, DataLoader) for item in source) or not any(map(_is_batch, source))


def _is_batch(item: Any) -> bool:
    """Return whether what stands in a list looks like a batch, and not like a loader."""
    if isinstance(item, Tensor | list | tuple | Mapping | str | bytes):
        return True
    # arrays, and the batches of libraries, can be iterated too
    is_array = hasattr(item, "__array__") or callable(getattr(item, "to", None))
    return is_array or not hasattr(item, "__iter__")


def _iterable(loader: Any, kind: str) -> Any:
    is_iterable = isinstance(loader, Iterable) or hasattr(loader, "__getitem__")
    if not is_iterable or isinstance(loader, str | bytes | type):
        raise DataError(
            f"the {kind} loader {loader!r} of type {type(loader).__qualname__} cannot be iterated: "
            "it must be a DataLoader or another iterable of batches."
        )
    return loader


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the samplers that want to know which epoch begins."""
    for part in _parts_of(loader):
        tell = getattr(part, "set_epoch", None)
        if callable(tell):
            tell(epoch)


def generators_of(loaders: Iterable[Any]) -> list[Generator]:
    """Return the random generators that loaders and their samplers own, each once, in order."""
    found: list[Generator] = []
    for loader in loaders:
        for part in _parts_of(loader):
            generator = getattr(part, "generator", None)
            if isinstance(generator, Generator) and not any(generator is g for g in found):
                found.append(generator)
    return found


def _parts_of(loader: Any) -> list[Any]:
    """Return a loader, or several combined, with their samplers, each object once."""
    parts: list[Any] = []
    for single in loader.flattened if isinstance(loader, CombinedLoader) else [loader]:
        batch_sampler = getattr(single, "batch_sampler", None)
        for part in (
            single,
            getattr(single, "sampler", None),
            batch_sampler,
            getattr(batch_sampler, "sampler", None),
        ):
            if part is not None and not any(part is known for known in parts):
                parts.append(part)
    return parts


def copy_loader(
    loader: DataLoader[Any], *, sampler: Any = None, batch_sampler: Any = None
) -> DataLoader[Any]:
    """Return a DataLoader like `loader`, with another sampler or batch sampler."""
    batching: dict[str, Any] = {"batch_sampler": batch_sampler}
    if batch_sampler is None:
        batching = {
            "sampler": sampler,
            "batch_size": loader.batch_size,
            "drop_last": loader.drop_last,
        }
    return DataLoader(
        loader.dataset,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        in_order=loader.in_order,
        **batching,
    )


def without_shuffling(loader: Any) -> Any:
    """Return the loader with its samples in their own order, where it draws them at random.

    Several that are combined are changed one by one. A loader with a sampler or batch sampler of
    the user's own is left as it is.
    """
    if isinstance(loader, CombinedLoader):
        parts = loader.loaders
        if isinstance(parts, Mapping):
            named = {name: without_shuffling(part) for name, part in parts.items()}
            return CombinedLoader(named, loader.mode)
        return CombinedLoader([without_shuffling(part) for part in parts], loader.mode)
    if type(loader) is not DataLoader or loader.batch_size is None:
        return loader
    if isinstance(loader.sampler, RandomSampler):
        return copy_loader(loader, sampler=SequentialSampler(loader.dataset))  # type: ignore[arg-type]
    if isinstance(loader.sampler, SubsetRandomSampler):
        return copy_loader(loader, sampler=loader.sampler.indices)
    return loader
