"""Parts of a batch, by a key, several keys, or functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from trainer_hooks.errors import DataError

__all__ = ["batch_get", "batch_set"]


def batch_get(batch: Any, key: Any) -> Any:
    """Return a part of a batch.

    Args:
        batch: it.
        key: a key, an index, a slice, the name of an attribute, a sequence of keys, a function of
            the batch, or two functions, of which the first gets.

    Raises:
        DataError: the batch has no such part.
    """
    getter = key[0] if _are_functions(key) else key
    if callable(getter):
        return getter(batch)
    try:
        if isinstance(key, Sequence) and not isinstance(key, str):
            return type(key)(batch_get(batch, one) for one in key)  # type: ignore[call-arg]
        return batch[key]
    except (TypeError, LookupError) as error:
        if isinstance(key, str) and hasattr(batch, key):
            return getattr(batch, key)
        raise DataError(
            f"part {key!r} of a batch of type {type(batch).__qualname__}: it has none. Give a key, "
            "an index, or a function of the batch."
        ) from error


def batch_set(batch: Any, key: Any, value: Any) -> Any:
    """Return a batch with a part replaced; containers that can be changed are changed.

    Args:
        batch: it.
        key: as for `batch_get`; of two functions the second sets, given batch and value.
        value: what to put there; of several keys one for each.
    """
    setter = key[1] if _are_functions(key) else key
    if callable(setter):
        return setter(batch, value)
    if isinstance(key, Sequence) and not isinstance(key, str):
        for one, part in zip(key, value, strict=True):
            batch = batch_set(batch, one, part)
        return batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        name = batch._fields[key] if isinstance(key, int) else key
        return batch._replace(**{name: value})  # type: ignore[attr-defined]
    if isinstance(batch, tuple):
        parts = list(batch)
        parts[key] = value
        return tuple(parts)
    if isinstance(batch, Mapping) or isinstance(key, int | slice):
        batch[key] = value
    elif is_dataclass(batch) and not isinstance(batch, type):
        return replace(batch, **{key: value})
    else:
        setattr(batch, key, value)
    return batch


def _are_functions(key: Any) -> bool:
    return isinstance(key, tuple | list) and len(key) == 2 and all(map(callable, key))
