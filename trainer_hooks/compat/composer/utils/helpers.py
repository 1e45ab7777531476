"""Helpers for arguments, placeholders in names, addresses, and the parts of a batch."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from trainer_hooks.compat.composer.utils import dist
from trainer_hooks.errors import DataError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from torch import nn

__all__ = [
    "batch_get",
    "batch_set",
    "ensure_tuple",
    "format_name_with_dist",
    "get_free_tcp_port",
    "is_notebook",
    "map_collection",
    "model_eval_mode",
    "parse_uri",
]


def ensure_tuple(item: Any) -> tuple[Any, ...]:
    """Return an argument as a tuple.

    Returns:
        An empty tuple for None, the items of a list or tuple, the values of a dict, or `(item,)`.
    """
    if item is None:
        return ()
    if isinstance(item, dict):
        return tuple(item.values())
    if isinstance(item, list | tuple):
        return tuple(item)
    return (item,)


def format_name_with_dist(format_str: str, run_name: str, **extra: object) -> str:
    """Fill in the placeholders of a name.

    Args:
        format_str: a template with `{run_name}`, `{rank}`, `{local_rank}` and `{world_size}`.
        run_name: the name of the run.
        extra: the values of other placeholders.
    """
    return format_str.format(
        run_name=run_name,
        rank=dist.get_global_rank(),
        local_rank=dist.get_local_rank(),
        world_size=dist.get_world_size(),
        **extra,
    )


def parse_uri(uri: str | os.PathLike[str]) -> tuple[str, str, str]:
    """Return the kind of store, the bucket and the path of an address; empty texts for a path.

    Args:
        uri: an address such as `"s3://bucket/run/latest.pt"`, or a path.
    """
    parsed = urlparse(str(uri).replace("AZURE_BLOBS", "azure"))
    # the name of an account may stand behind the bucket
    bucket = parsed.netloc.partition("@")[0]
    path = parsed.path.lstrip("/") if parsed.scheme else parsed.path
    return parsed.scheme, bucket, path


def map_collection(collection: Any, map_fn: Callable[[Any], Any]) -> Any:
    """Return a value, or each item of a list, tuple or dict, as a function returns it.

    Args:
        collection: the value or collection.
        map_fn: the function.
    """
    if isinstance(collection, list | tuple):
        return type(collection)(map(map_fn, collection))
    if isinstance(collection, dict):
        return {key: map_fn(value) for key, value in collection.items()}
    return map_fn(collection)


def get_free_tcp_port() -> int:
    """Return the number of a port of this machine that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def is_notebook() -> bool:
    """Return whether this process runs a notebook."""
    return "ipykernel" in sys.modules


@contextmanager
def model_eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for the length of a context."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def batch_get(batch: Any, key: Any) -> Any:
    """Return a part of a batch.

    Args:
        batch: a batch of any type.
        key: a key, an index, a slice, the name of an attribute, a sequence of keys, a function of
            the batch, or two functions, of which the first one gets the part.

    Raises:
        DataError: the batch has no such part.
    """
    getter = key[0] if _is_getter_and_setter(key) else key
    if callable(getter):
        return getter(batch)
    try:
        if isinstance(key, Sequence) and not isinstance(key, str):
            # several keys in a list give a list, and in a tuple a tuple
            return type(key)(batch_get(batch, single) for single in key)  # type: ignore[call-arg]
        return batch[key]
    # a TypeError comes from an object without items, such as a dataclass
    except (TypeError, LookupError) as error:
        if isinstance(key, str) and hasattr(batch, key):
            return getattr(batch, key)
        raise DataError(
            f"part {key!r} of a batch of type {type(batch).__qualname__}: it has none. Give a key, "
            "an index, or a function of the batch."
        ) from error


def batch_set(batch: Any, key: Any, value: Any) -> Any:
    """Return a batch with a part replaced; a mutable batch is changed in place.

    Args:
        batch: a batch of any type.
        key: a key as of `batch_get`; of two functions the second one takes the batch and the value,
            and returns the batch.
        value: the new part; of several keys one value for each.
    """
    setter = key[1] if _is_getter_and_setter(key) else key
    if callable(setter):
        return setter(batch, value)
    if isinstance(key, Sequence) and not isinstance(key, str):
        for single, part in zip(key, value, strict=True):
            batch = batch_set(batch, single, part)
        return batch
    # a named tuple, whose class takes its fields one by one
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


def _is_getter_and_setter(key: Any) -> bool:
    return isinstance(key, tuple | list) and len(key) == 2 and all(map(callable, key))
