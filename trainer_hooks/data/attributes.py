"""Keep the plain attributes of samplers, collate functions and data sets that users write."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer_hooks.data.generators import walk_objects
from trainer_hooks.data.loaders import individual_loaders
from trainer_hooks.data.workers import has_state
from trainer_hooks.runtime.parameter_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_ITEMS = 1 << 20
"""Items of the largest attribute of a sampler or a collate function that is kept."""
_MAX_ITEMS_OF_DATA = 1 << 13
"""Items of the largest attribute of a data set, or of an iterable, that is kept."""

_SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes})
_SEQUENCES = frozenset({list, tuple, set, frozenset, deque})
_ORDERED = frozenset({list, tuple, deque})

_PASSED_OVER = frozenset({"torch", "torchdata", "numpy", "trainer_hooks"} | sys.stdlib_module_names)
"""Packages whose objects have no state of a user's in their attributes."""
_TRAINERS = frozenset({"trainer_hooks", "lightning", "pytorch_lightning"})
"""Packages whose subclasses belong to the run, which keeps their states otherwise."""
_THREADS = frozenset({"threading", "_thread", "queue", "_queue", "multiprocessing", "concurrent"})
"""Packages of attributes by which an object is known that works in other threads, too."""


class PlainAttributes:
    """The plain attributes of objects that users write, as they are kept in checkpoints.

    Plain are numbers, texts, None, tensors, arrays, and containers of these. An attribute is saved
    once it differs from its value at construction. Left out are objects that work in other threads,
    torch's, modules, large values, and all parts of a loader that keeps its own position.

    Args:
        loader: the loader, alone, in a list or combined.
    """

    def __init__(self, loader: Any) -> None:
        # by path: the table of attributes, its plain values at construction, and the limit of size
        self._parts: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {}
        seen_ids: set[int] = set()
        for index, single in enumerate(individual_loaders(loader)):
            if has_state(single):  # which keeps that of its parts
                continue
            data = getattr(single, "dataset", None)
            if data is not None:
                self._add(f"[{index}].dataset", data, seen_ids, _MAX_ITEMS_OF_DATA)
            limit = _MAX_ITEMS_OF_DATA if data is None else _MAX_ITEMS
            self._add(f"[{index}]", single, seen_ids, limit)

    def _add(self, name: str, owner: Any, seen_ids: set[int], limit: int) -> None:
        for path, item in walk_objects(name, owner, seen_ids):
            if not _is_of_user(item):
                continue
            try:
                table = object.__getattribute__(item, "__dict__")
            except AttributeError:
                continue
            if not any(_package(type(value)) in _THREADS for value in table.values()):
                self._parts[plain_name(path)] = (table, dict(_plain_items(table, limit)), limit)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def changed(self) -> dict[str, dict[str, Any]]:
        """Return by path copies of the plain attributes that differ from those at construction."""
        changes = {}
        for path, (table, first, limit) in self._parts.items():
            changed = {
                name: value
                for name, value in list(table.items())
                if name not in first or not _is_same(value, first[name])
            }
            if changed and (plain := dict(_plain_items(changed, limit))):
                changes[path] = plain
        return changes

    def restore(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the attributes that `changed` returned; the others go back to those at construction.

        Containers and tensors are changed in place where they can be: others may hold them.
        """
        for path, (table, first, _) in self._parts.items():
            for name, value in {**first, **states.get(path, {})}.items():
                if name not in table or not _is_same(table[name], value):
                    _assign(table, name, value)


def has_data_moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether attributes of a data set or a collate function differ between two states."""

    def of_data(state: Mapping[str, Any]) -> dict[str, Any]:
        return {
            path: part
            for path, part in state.items()
            if ".dataset" in path or ".collate_fn" in path
        }

    return not _is_same(of_data(after), of_data(before))


def _is_of_user(item: Any) -> bool:
    """Return whether an object is a sampler, a collate function or data of a user's class."""
    cls = type(item)
    return (
        _package(cls) not in _PASSED_OVER
        and not issubclass(cls, nn.Module)
        # a data module or a callback to which the data refers
        and not any(_package(base) in _TRAINERS for base in cls.__mro__)
    )


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _plain_items(table: Mapping[str, Any], limit: int) -> Iterator[tuple[str, Any]]:
    """Yield the plain attributes, copied, with their names."""
    for name, value in list(table.items()):
        try:
            copy, _ = _copy(value, limit)
        except _NotPlainError:
            continue
        yield name, copy


class _NotPlainError(Exception):
    """A value that is not plain, or too large to be kept."""


def _copy(value: Any, left: int) -> tuple[Any, int]:
    """Return a copy of a plain value, and how many items may follow.

    Raises:
        _NotPlainError: it is not plain, or has more items.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value, left - 1
    if issubclass(kind, Tensor) or _is_array(value):
        left -= value.numel() if isinstance(value, Tensor) else value.size
        if left < 0 or (isinstance(value, Tensor) and (kind is not Tensor or value.is_meta)):
            raise _NotPlainError
        copy = value.detach().clone() if isinstance(value, Tensor) else value.copy()
        return copy, left
    if kind not in _SEQUENCES and kind is not dict:
        raise _NotPlainError
    left -= len(value)
    if left < 0:
        raise _NotPlainError
    if kind is dict:
        if not set(map(type, value)) <= _SCALARS:
            raise _NotPlainError
        copies, left = _copies(value.values(), left)
        return dict(zip(value, copies, strict=True)), left
    # a list of a million numbers is copied at C's speed
    if set(map(type, value)) <= _SCALARS:
        return (deque(value, value.maxlen) if kind is deque else kind(value)), left
    copies, left = _copies(value, left)
    return (deque(copies, value.maxlen) if kind is deque else kind(copies)), left


def _copies(values: Any, left: int) -> tuple[list[Any], int]:
    copies = []
    for value in values:
        copy, left = _copy(value, left)
        if left < 0:
            raise _NotPlainError
        copies.append(copy)
    return copies, left


def _is_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy with plain elements."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in "biufcSU"


def _is_same(value: Any, first: Any) -> bool:
    """Return whether a value equals one that was copied."""
    kind = type(value)
    if kind is not type(first):
        return False
    if kind in _SCALARS:
        return bool(value == first or (value != value and first != first))  # NaN
    if isinstance(value, Tensor):
        return value.dtype == first.dtype and torch.equal(value, first)
    if _is_array(value):
        return value.dtype == first.dtype and bool(
            value.shape == first.shape and (value == first).all()
        )
    if kind not in _SEQUENCES and kind is not dict:
        return False
    if len(value) != len(first):
        return False
    if kind is dict:
        return list(value) == list(first) and all(map(_is_same, value.values(), first.values()))
    if kind not in _ORDERED or set(map(type, value)) <= _SCALARS:
        return bool(value == first)
    return all(map(_is_same, value, first))


def _assign(table: dict[str, Any], name: str, value: Any) -> None:
    """Set an attribute to a copy of a value, in place if it has the same kind already."""
    present: Any = table.get(name)
    copy: Any = _copy(value, sys.maxsize)[0]
    if type(present) is not type(copy):
        table[name] = copy
    elif isinstance(present, list):
        present[:] = copy
    elif isinstance(present, dict | set):
        present.clear()
        present.update(copy)
    elif isinstance(present, deque) and present.maxlen == copy.maxlen:
        present.clear()
        present.extend(copy)
    elif (
        isinstance(present, Tensor)
        and (present.shape, present.dtype) == (copy.shape, copy.dtype)
        and not present.is_inference()
    ):
        with torch.no_grad():
            present.copy_(copy)
    elif _is_array(present) and (present.shape, present.dtype) == (copy.shape, copy.dtype):
        present[...] = copy
    else:
        table[name] = copy
