"""Collections of loaders, nested any way: which there are, and others of the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["in_form_of", "is_several", "leaves", "loaders_in", "mapped"]


def is_several(source: Any) -> bool:
    """Return whether this is a dict or list of loaders; a list of batches is itself a loader."""
    if not isinstance(source, list | tuple) or not source:
        return isinstance(source, Mapping)
    return any(map(_holds_loader, source)) or not any(map(_is_batch, source))


def leaves(source: Any) -> Iterator[Any]:
    """Give the loaders of a list or dict, and of those in it, in their order."""
    for item in source.values() if isinstance(source, Mapping) else source:
        if is_several(item):
            yield from leaves(item)
        else:
            yield item


def mapped(source: Any, change: Callable[[Any], Any]) -> Any:
    """Return lists and dicts like those of `source`, with `change` of each loader in its place."""

    def changed(item: Any) -> Any:
        return mapped(item, change) if is_several(item) else change(item)

    if isinstance(source, Mapping):
        return {name: changed(item) for name, item in source.items()}
    return [changed(item) for item in source]


def in_form_of(source: Any, loaders: Sequence[Any]) -> Any:
    """Return loaders in lists and dicts like those of `source`, which gave as many; or the one."""
    left = iter(loaders)
    return mapped(source, lambda _: next(left)) if is_several(source) else next(left)


def loaders_in(source: Any) -> list[Any]:
    """Return the loaders of a list or dict of them, or the one, or none for None."""
    if source is None:
        return []
    return list(leaves(source)) if is_several(source) else [source]


def _holds_loader(item: Any) -> bool:
    """Return whether this is a loader of torch's, or a collection that begins with one."""
    if isinstance(item, Mapping):
        return any(map(_holds_loader, item.values()))
    if isinstance(item, list | tuple):
        return bool(item) and _holds_loader(item[0])  # it may be a long list of batches
    return isinstance(item, DataLoader | Dataset)


def _is_batch(item: Any) -> bool:
    """Return whether what stands in a list looks like a batch, and not like a loader."""
    if isinstance(item, Tensor | list | tuple | Mapping | str | bytes):
        return True
    # arrays, and the batches of libraries, can be iterated too
    is_array = hasattr(item, "__array__") or callable(getattr(item, "to", None))
    return is_array or not hasattr(item, "__iter__")
