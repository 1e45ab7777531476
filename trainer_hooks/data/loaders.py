"""Loaders: tell one from several, know their parts, copy one with another sampler."""

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

from trainer_hooks.data.combined import CombinedLoader
from trainer_hooks.data.nesting import is_several, leaves
from trainer_hooks.data.showing import shown
from trainer_hooks.errors import DataError

__all__ = [
    "as_eval_loaders",
    "as_train_loader",
    "copy_loader",
    "has_indices",
    "set_epoch",
    "singles_of",
    "without_shuffling",
]


def as_train_loader(source: Any) -> Any:
    """Return one loader: several in a list or dict, nested any way, are combined.

    An `IterableDataset` is taken as it is: many give batches.

    Raises:
        DataError: it cannot be iterated or is a data set of samples, or one of several is so.
    """
    if is_several(source):
        for part in leaves(source):
            _iterable(part, "training")
        return CombinedLoader(source, "max_size_cycle")
    return _iterable(source, "training")


def as_eval_loaders(source: Any, kind: str) -> list[Any]:
    """Return a list of loaders, to be run one after another; nested ones in their order.

    Several that are combined are one, unless they are so in the mode `"sequential"`.
    """
    if isinstance(source, CombinedLoader):
        return source.flattened if source.mode == "sequential" else [source]
    if is_several(source):
        return [_iterable(loader, kind) for loader in leaves(source)]
    return [_iterable(source, kind)]


def _iterable(loader: Any, kind: str) -> Any:
    is_iterable = isinstance(loader, Iterable) or hasattr(loader, "__getitem__")
    if not is_iterable or isinstance(loader, str | bytes | type):
        raise DataError(
            f"the {kind} loader {shown(loader)} of type {type(loader).__qualname__} cannot be "
            "iterated: it must be a DataLoader or another iterable of batches."
        )
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        raise DataError(
            f"the {kind} loader {shown(loader)} is a data set: each of its samples would be taken "
            "for a batch. Wrap it in DataLoader(dataset, batch_size=...), or with batch_size=None "
            "where its items are batches."
        )
    return loader


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the samplers that want to know which epoch begins."""
    for part in _parts_of(loader):
        tell = getattr(part, "set_epoch", None)
        if callable(tell):
            tell(epoch)


def singles_of(loader: Any) -> list[Any]:
    """Return the loaders that one consists of: itself, or several combined."""
    return loader.flattened if isinstance(loader, CombinedLoader) else [loader]


def has_indices(loader: Any) -> bool:
    """Return whether a loader is torch's and loads by index: nothing but that decides a batch."""
    return type(loader) is DataLoader and not isinstance(loader.dataset, IterableDataset)


def _parts_of(loader: Any) -> list[Any]:
    """Return a loader, or several combined, with their samplers, each object once."""
    parts: list[Any] = []
    for single in singles_of(loader):
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
        return loader.mapped(without_shuffling)
    if type(loader) is not DataLoader or loader.batch_size is None:
        return loader
    if isinstance(loader.sampler, RandomSampler):
        return copy_loader(loader, sampler=SequentialSampler(loader.dataset))  # type: ignore[arg-type]
    if isinstance(loader.sampler, SubsetRandomSampler):
        return copy_loader(loader, sampler=loader.sampler.indices)
    return loader
