"""Normalise loaders and copy them with another sampler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from trainer_hooks.data.combined_loader import CombinedLoader
from trainer_hooks.data.loader_inspection import (
    describe_loader,
    is_loader_collection,
    iterate_loaders,
)
from trainer_hooks.errors import DataError

__all__ = [
    "as_eval_loaders",
    "as_train_loader",
    "copy_loader",
    "has_indices",
    "individual_loaders",
    "set_epoch",
    "without_shuffling",
]


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
    is_iterable = isinstance(loader, Iterable) or hasattr(loader, "__getitem__")
    # Texts and classes can be iterable, but are never loaders.
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
    """Call `set_epoch` of the loader and its samplers where they have it."""
    for part in _loaders_and_samplers(loader):
        method = getattr(part, "set_epoch", None)
        if callable(method):
            method(epoch)


def individual_loaders(loader: Any) -> list[Any]:
    """Return the loaders of a CombinedLoader, or the loader itself in a list."""
    return loader.flattened if isinstance(loader, CombinedLoader) else [loader]


def has_indices(loader: Any) -> bool:
    """Return whether a loader is torch's DataLoader over a map-style data set.

    Then the batches depend on nothing but the indices and the data set.
    """
    return type(loader) is DataLoader and not isinstance(loader.dataset, IterableDataset)


def _loaders_and_samplers(loader: Any) -> list[Any]:
    """Return a loader, or several combined, with their samplers, each object once."""
    parts: list[Any] = []
    for single in individual_loaders(loader):
        batch_sampler = getattr(single, "batch_sampler", None)
        for part in (
            single,
            getattr(single, "sampler", None),
            batch_sampler,
            getattr(batch_sampler, "sampler", None),
        ):
            if part is not None and not any(part is other for other in parts):
                parts.append(part)
    return parts


def copy_loader(
    loader: DataLoader[Any], *, sampler: Any = None, batch_sampler: Any = None
) -> DataLoader[Any]:
    """Return a DataLoader like `loader`, with another sampler or batch sampler."""
    # A new loader, because DataLoader.__setattr__ refuses another sampler after construction; and
    # it rejects batch_size and drop_last beside a batch sampler.
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
    """Return the loader with its samples in order, if it draws them at random.

    Loaders in a CombinedLoader are changed one by one. A loader with a custom sampler or batch
    sampler is returned as it is.
    """
    if isinstance(loader, CombinedLoader):
        return loader.mapped(without_shuffling)
    # batch_size is None with a custom batch sampler, whose order is the user's, and without
    # batching.
    if type(loader) is not DataLoader or loader.batch_size is None:
        return loader
    if isinstance(loader.sampler, RandomSampler):
        return copy_loader(loader, sampler=SequentialSampler(loader.dataset))  # type: ignore[arg-type]
    if isinstance(loader.sampler, SubsetRandomSampler):
        return copy_loader(loader, sampler=loader.sampler.indices)
    return loader
