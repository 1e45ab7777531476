"""Loaders: their length and text in messages; several as one; copies with another sampler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count
from reprlib import Repr
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks._options import answers_keywords
from trainer_hooks.data.workers import reproducible_iterator
from trainer_hooks.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class _LoaderRepr(Repr):
    """A shortened `repr`; tensors show their shape. `Repr` finds methods by type name."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = 120
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 2
        self.maxlevel = 3

    def repr_Tensor(self, tensor: Tensor, _level: int) -> str:  # noqa: N802 - by the type's name
        """Return the tensor's shape, such as `Tensor(8, 32)`."""
        return f"Tensor({', '.join(map(str, tensor.shape))})"


_LOADER_REPR = _LoaderRepr()


def describe_loader(loader: Any) -> str:
    """Return a short text about a loader for messages."""
    return _LOADER_REPR.repr(loader)


def number_of_batches(loader: Any) -> int | float:
    """Return the length of a loader, or infinity if it has none."""
    try:
        return len(loader)
    # a DataLoader always has `__len__`, which raises if its data set has no length
    except (TypeError, NotImplementedError):
        return math.inf


def sample_counts(loader: Any, batches: int | float) -> tuple[int, int] | None:
    """Return the samples of one batch of a DataLoader, and those of `batches` batches together.

    It is None for a loader that does not tell, such as one with a batch sampler or an iterable.
    """
    size = getattr(loader, "batch_size", None)
    sampler = getattr(loader, "sampler", None)
    if not isinstance(size, int) or sampler is None or batches == math.inf:
        return None
    num_samples = number_of_batches(sampler)  # the length of a sampler is in samples
    return None if num_samples == math.inf else (size, int(min(num_samples, size * batches)))


def no_batch_message(description: str, loader: Any) -> str:
    """Return the error message for a loader that gave no batch.

    Args:
        description: how the message names the loader.
        loader: the loader.
    """
    if hasattr(loader, "__next__"):
        return (
            f"{description} gave no batch: {describe_loader(loader)} is an iterator, which can be "
            "gone through only once. Pass what begins anew each time, such as a DataLoader or a "
            "list."
        )
    return (
        f"{description} gave no batch: {describe_loader(loader)} must give at least one each time "
        "it is iterated. Check the length of its data, and drop_last."
    )


def apply_batch_limit(size: int | float, limit: int | float, option: str) -> int | float:
    """Return how many of `size` batches a `limit_*_batches` option allows.

    Raises:
        DataError: a fraction of an unknown length, or one that leaves no batch.
    """
    # by the type: 1 is one batch, and 1.0 is all of them
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


def shortage_message(loader: Any, purpose: str, count: int) -> str:
    """Return the message for a loader that gave fewer batches than its length."""
    return (
        f"the {purpose} loader {describe_loader(loader)} ended after {count} batches, but its "
        f"length is {number_of_batches(loader)}: a StopIteration that its data set raises ends it, "
        "too. Mend its __len__, or what it loads."
    )


def is_loader_collection(source: Any) -> bool:
    """Return whether `source` is a dict or list of loaders; a list of batches is a loader."""
    if not isinstance(source, list | tuple) or not source:
        return isinstance(source, Mapping)
    # iterables of unknown classes are taken for loaders, unless one of them looks like a batch
    return any(map(_holds_loader, source)) or not any(map(_is_batch, source))


def iterate_loaders(source: Any) -> Iterator[Any]:
    """Yield the loaders of a list or dict in order, also from nested lists and dicts."""
    for item in source.values() if isinstance(source, Mapping) else source:
        if is_loader_collection(item):
            yield from iterate_loaders(item)
        else:
            yield item


def loader_places(source: Any, before: str = "") -> Iterator[str]:
    """Yield the place of each loader in nested lists and dicts, as `['digits'][0]`, in order."""
    for key, item in source.items() if isinstance(source, Mapping) else enumerate(source):
        place = f"{before}[{key!r}]"
        if is_loader_collection(item):
            yield from loader_places(item, place)
        else:
            yield place


def map_loaders(source: Any, convert_loader: Callable[[Any], Any]) -> Any:
    """Return lists and dicts nested like `source`, with `convert_loader` applied to each loader."""
    items = source.items() if isinstance(source, Mapping) else enumerate(source)
    converted = {
        key: map_loaders(item, convert_loader)
        if is_loader_collection(item)
        else convert_loader(item)
        for key, item in items
    }
    return converted if isinstance(source, Mapping) else list(converted.values())


def nest_like(source: Any, loaders: Sequence[Any]) -> Any:
    """Return loaders in lists and dicts nested like `source`, or the only one."""
    remaining = iter(loaders)
    return (
        map_loaders(source, lambda _: next(remaining))
        if is_loader_collection(source)
        else next(remaining)
    )


def loaders_in(source: Any) -> list[Any]:
    """Return the loaders of a list or dict, or the only one, or an empty list for None."""
    if source is None:
        return []
    return list(iterate_loaders(source)) if is_loader_collection(source) else [source]


def _holds_loader(item: Any) -> bool:
    """Return whether this is a loader of torch, or a collection that begins with one."""
    if isinstance(item, Mapping):
        return any(map(_holds_loader, item.values()))
    if isinstance(item, list | tuple):
        # only the first item: it may be a long list of batches
        return bool(item) and _holds_loader(item[0])
    return isinstance(item, DataLoader | Dataset)


def _is_batch(item: Any) -> bool:
    """Return whether a list item looks like a batch, and not like a loader."""
    if isinstance(item, Tensor | list | tuple | Mapping | str | bytes):
        return True
    # arrays and the batch classes of libraries are iterable as well
    is_array = hasattr(item, "__array__") or callable(getattr(item, "to", None))
    return is_array or not hasattr(item, "__iter__")


_END = object()
_MODES = ("max_size_cycle", "min_size", "max_size", "sequential")


class CombinedLoader:
    """Combine several loaders: a batch of each at a time, or one loader after another.

    Args:
        iterables: a list or dict of loaders, or nested ones; a batch is then a list or dict of
            their batches, nested alike.
        mode: `"min_size"` ends with the shortest loader, `"max_size_cycle"` restarts loaders until
            the longest has ended, `"max_size"` yields None for a loader that has ended.
            `"sequential"` iterates over one loader after another, with a batch of one at a time.
    """

    @answers_keywords
    def __init__(
        self, iterables: Sequence[Any] | Mapping[Any, Any], mode: str = "min_size"
    ) -> None:
        if mode not in _MODES:
            raise DataError(f"CombinedLoader(mode={mode!r}): must be one of {', '.join(_MODES)}.")
        if not iterables:
            raise DataError("CombinedLoader was given no loader: it needs at least one.")
        # the attribute's name is part of the paths of generators in checkpoints: do not rename it
        self.loaders = iterables
        self.mode = mode

    @property
    def iterables(self) -> Any:
        """The loaders as they were passed."""
        return self.loaders

    @property
    def flattened(self) -> list[Any]:
        """The loaders in a list."""
        return list(iterate_loaders(self.loaders))

    def mapped(self, convert_loader: Callable[[Any], Any]) -> CombinedLoader:
        """Return a CombinedLoader of the same nesting with each loader converted."""
        return CombinedLoader(map_loaders(self.loaders, convert_loader), self.mode)

    def __len__(self) -> int:
        sizes = [number_of_batches(loader) for loader in self.flattened]
        # in each mode a loader without length may be the one that ends the epoch, also the shortest
        if math.inf in sizes:
            # a TypeError: `list(loader)` asks for a length hint, and ignores this error only
            raise TypeError("a combined loader has no length where one of its loaders has none")
        if self.mode == "sequential":
            return int(sum(sizes))
        return int(min(sizes) if self.mode == "min_size" else max(sizes))

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(lambda open_loader: open_loader())

    def iterate(self, start: Callable[[Callable[[], Any]], Any]) -> Iterator[Any]:
        """Return an iterator over the batches.

        Args:
            start: calls the function that opens a later loader, or one of them again, and fetches
                its first batch; by then the training may have drawn random numbers.
        """
        if self.mode == "sequential":
            return self._iterate_sequentially(start)
        return self._iterate_together(start)

    def _iterate_sequentially(self, start: Callable[[Callable[[], Any]], Any]) -> Iterator[Any]:
        """Yield the batches of one loader after another, each opened when it begins."""
        for position, loader in enumerate(self.flattened):
            if position == 0:
                yield from reproducible_iterator(loader)
                continue
            iterator, first = start(partial(_open, loader))
            if first is not _END:
                yield first
                yield from iterator

    def _iterate_together(self, start: Callable[[Callable[[], Any]], Any]) -> Iterator[Any]:
        """Yield a nested batch with one batch of each loader."""
        loaders = self.flattened
        iterators = [reproducible_iterator(loader) for loader in loaders]
        counter = count()
        positions = map_loaders(self.loaders, lambda _: next(counter))
        ended = [False] * len(iterators)
        while True:
            batches: list[Any] = []
            for position, loader in enumerate(loaders):
                batch = next(iterators[position], _END)
                if batch is _END:
                    ended[position] = True
                    if self.mode == "min_size" or all(ended):
                        return
                    batch = None
                    if self.mode == "max_size_cycle":
                        iterators[position], batch = start(partial(_open, loader))
                        if batch is _END:
                            place = list(loader_places(self.loaders))[position]
                            raise DataError(
                                f"loader {place} of a CombinedLoader, {describe_loader(loader)}, "
                                "gives no batch: it cannot be repeated until the longest has "
                                "ended. Leave it out, or give a loader that can be iterated more "
                                "than once."
                            )
                batches.append(batch)
            yield _nest_batches(batches, positions)


def _open(loader: Any) -> tuple[Iterator[Any], Any]:
    """Return an iterator over a loader's batches, and the first of them or `_END`."""
    iterator = reproducible_iterator(loader)
    return iterator, next(iterator, _END)


def _nest_batches(batches: list[Any], positions: Any) -> Any:
    """Return the batches in lists and dicts nested like `positions`, which holds their indices."""
    if isinstance(positions, int):
        return batches[positions]
    if isinstance(positions, dict):
        return {
            name: _nest_batches(batches, position_in_batch)
            for name, position_in_batch in positions.items()
        }
    return [_nest_batches(batches, position_in_batch) for position_in_batch in positions]


def as_train_loader(source: Any) -> Any:
    """Return a single loader; loaders in lists and dicts of any nesting are combined.

    An `IterableDataset` is accepted as it is: many of them yield batches.

    Raises:
        DataError: a loader is not iterable, or is a data set of samples.
    """
    if is_loader_collection(source):
        for part in iterate_loaders(source):
            _require_iterable(part, "training")
        return CombinedLoader(source, "max_size_cycle")
    return _require_iterable(source, "training")


def as_eval_loaders(source: Any, purpose: str) -> list[Any]:
    """Return a list of loaders to run one after another, with nested ones in order.

    A `CombinedLoader` is one loader, unless its mode is `"sequential"`.
    """
    if isinstance(source, CombinedLoader):
        return source.flattened if source.mode == "sequential" else [source]
    if is_loader_collection(source):
        return [_require_iterable(loader, purpose) for loader in iterate_loaders(source)]
    return [_require_iterable(source, purpose)]


def _require_iterable(loader: Any, purpose: str) -> Any:
    """Return the loader if it is an iterable of batches.

    Raises:
        DataError: it is not iterable, or is a data set of samples.
    """
    # `iter` accepts an object with `__getitem__` alone, which is no Iterable.
    is_iterable = isinstance(loader, Iterable) or hasattr(loader, "__getitem__")
    # texts and classes can be iterable, but are never loaders
    if not is_iterable or isinstance(loader, str | bytes | type):
        raise DataError(
            f"the {purpose} loader {describe_loader(loader)} of type {type(loader).__qualname__} "
            "cannot be iterated: it must be a DataLoader or another iterable of batches."
        )
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        raise DataError(
            f"the {purpose} loader {describe_loader(loader)} is a data set: each of its samples "
            "would be taken for a batch. Wrap it in DataLoader(dataset, batch_size=...), or with "
            "batch_size=None where its items are batches."
        )
    return loader


def set_epoch(loader: Any, epoch: int) -> None:
    """Call `set_epoch` of the loader and its samplers where they have it, once of each object."""
    parts: dict[int, Any] = {}
    for single in individual_loaders(loader):
        batch_sampler = getattr(single, "batch_sampler", None)
        # with a batch sampler of the user's, `loader.sampler` is a placeholder, and the real one is
        # inside
        samplers = getattr(single, "sampler", None), getattr(batch_sampler, "sampler", None)
        parts.update((id(part), part) for part in (single, samplers[0], batch_sampler, samplers[1]))
    for part in parts.values():
        method = getattr(part, "set_epoch", None)
        if callable(method):
            method(epoch)


def sampler_seeds(loader: Any) -> list[int]:
    """Return the seeds of samplers that draw the order of each epoch from a seed."""
    return [part.seed for part in _seeded_samplers(loader)]


def restore_sampler_seeds(loader: Any, seeds: Sequence[int]) -> None:
    """Restore the seeds that `sampler_seeds` returned, unless the samplers are others now."""
    samplers = list(_seeded_samplers(loader))
    if len(samplers) == len(seeds):
        for sampler, seed in zip(samplers, seeds, strict=True):
            sampler.seed = seed


def _seeded_samplers(loader: Any) -> Iterator[Any]:
    """Yield each sampler with a seed of its own that shuffles by the epoch, once.

    torch's DistributedSampler is one: no random state that a checkpoint holds determines its order.
    """
    seen_ids = set()
    for single in individual_loaders(loader):
        parts = [getattr(single, "batch_sampler", None), getattr(single, "sampler", None)]
        while parts:
            part = parts.pop()
            if part is None or id(part) in seen_ids:
                continue
            seen_ids.add(id(part))
            # in samplers that hold another one it has this name
            parts.append(getattr(part, "sampler", None))
            # a plain attribute, since a property need not have a setter
            has_seed = type(getattr(part, "__dict__", {}).get("seed")) is int
            if has_seed and callable(getattr(part, "set_epoch", None)):
                yield part


def individual_loaders(loader: Any) -> list[Any]:
    """Return the loaders of a CombinedLoader, or the loader itself in a list."""
    return loader.flattened if isinstance(loader, CombinedLoader) else [loader]


def has_indices(loader: Any) -> bool:
    """Return whether a loader is torch's DataLoader over a map-style data set.

    Then the batches depend on nothing but the indices and the data set.
    """
    # by the exact class: a subclass may do anything in its `__iter__`
    return type(loader) is DataLoader and not isinstance(loader.dataset, IterableDataset)


def copy_loader(
    loader: DataLoader[Any], *, sampler: Any = None, batch_sampler: Any = None
) -> DataLoader[Any]:
    """Return a DataLoader like `loader`, with another sampler or batch sampler."""
    # a new loader, because DataLoader.__setattr__ refuses another sampler after construction; and
    # it rejects batch_size and drop_last beside a batch sampler
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
    """Return the loader with the samples of its data set in order, whatever its sampler draws.

    Loaders in a CombinedLoader are changed one by one. A loader with a custom batch sampler is
    returned as it is.
    """
    if isinstance(loader, CombinedLoader):
        return loader.mapped(without_shuffling)
    # batch_size is None with a custom batch sampler, whose order is the user's, and without
    # batching.
    if type(loader) is not DataLoader or loader.batch_size is None:
        return loader
    if isinstance(loader.sampler, SubsetRandomSampler):
        return copy_loader(loader, sampler=loader.sampler.indices)
    # a stream has no order of its own, and a rank keeps its share of the samples
    fixed = (SequentialSampler, DistributedSampler, list, tuple, range)
    keeps_order = isinstance(loader.sampler, fixed)
    if keeps_order or isinstance(loader.dataset, IterableDataset):
        return loader
    return copy_loader(loader, sampler=SequentialSampler(loader.dataset))  # type: ignore[arg-type]
