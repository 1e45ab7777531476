"""Inspect loaders: their length, their text in messages, and collections of loaders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from reprlib import Repr
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainer_hooks.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "apply_batch_limit",
    "describe_loader",
    "is_loader_collection",
    "iterate_loaders",
    "loaders_in",
    "map_loaders",
    "nest_like",
    "no_batch_message",
    "number_of_batches",
    "sample_counts",
    "shortage_message",
]


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
    return any(map(_holds_loader, source)) or not any(map(_is_batch, source))


def iterate_loaders(source: Any) -> Iterator[Any]:
    """Yield the loaders of a list or dict in order, also from nested lists and dicts."""
    for item in source.values() if isinstance(source, Mapping) else source:
        if is_loader_collection(item):
            yield from iterate_loaders(item)
        else:
            yield item


def map_loaders(source: Any, convert_loader: Callable[[Any], Any]) -> Any:
    """Return lists and dicts nested like `source`, with `convert_loader` applied to each loader."""

    def convert(item: Any) -> Any:
        return (
            map_loaders(item, convert_loader)
            if is_loader_collection(item)
            else convert_loader(item)
        )

    if isinstance(source, Mapping):
        return {name: convert(item) for name, item in source.items()}
    return [convert(item) for item in source]


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
        # Only the first item: it may be a long list of batches.
        return bool(item) and _holds_loader(item[0])
    return isinstance(item, DataLoader | Dataset)


def _is_batch(item: Any) -> bool:
    """Return whether a list item looks like a batch, and not like a loader."""
    if isinstance(item, Tensor | list | tuple | Mapping | str | bytes):
        return True
    # Arrays and the batch classes of libraries are iterable as well.
    is_array = hasattr(item, "__array__") or callable(getattr(item, "to", None))
    return is_array or not hasattr(item, "__iter__")
