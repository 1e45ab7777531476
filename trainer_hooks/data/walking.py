"""What hangs on an object: the objects that it keeps, however deep, with a name for each place."""

from __future__ import annotations

import functools
import logging
from collections import deque
from dataclasses import dataclass
from itertools import islice
from types import (
    BuiltinMethodType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["walk"]

_MOST_OBJECTS = 2000
_MOST_ITEMS = 64
"""Longer containers hold data, or more of the same."""

_LEAVES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    NoneType,
    type,
    ModuleType,
    torch.Tensor,
    torch.optim.Optimizer,
    logging.Logger,
)
_OF_TORCH = frozenset(vars(torch.nn.Module()))
_OF_THE_RUN = tuple(
    f"trainer_hooks.{room}."
    for room in (
        "checkpoint", "clock", "connector", "context", "hooks", "loggers", "loops", "metrics",
        "runtime", "trainer",
    )
)  # fmt: skip
"""Rooms whose objects a module or a callback may hold on to, and which belong to the run."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is the same for all objects of a class, found out once.

    Attributes:
        is_leaf: whether such an object is data, code or a name, and keeps no other one.
        inner: gives what it holds beside its attributes, with the step that leads there.
        slots: its slots: the place of the class that has one among its ancestors, and the name.
        left_out: attributes that are not looked into.
    """

    is_leaf: bool
    inner: Callable[[Any], Iterable[tuple[str, Any]]] | None
    slots: tuple[tuple[int, str], ...]
    left_out: frozenset[str]


def walk(name: str, owner: Any, known: set[int]) -> Iterator[tuple[str, Any]]:
    """Give an object and what hangs on it, each once, with its place; the nearest come first.

    Attributes, slots, items, and what functions, partials and bound methods hold are followed.
    Tensors, modules of Python, classes, loggers and the trainer are not looked into.

    Args:
        name: what to call the owner.
        owner: where to begin.
        known: ids of objects that are left out; those that were seen are added.
    """
    left, kinds = _MOST_OBJECTS, _Kinds()
    queue = deque([] if kinds[type(owner)].is_leaf else [(name, owner)])
    while queue and left:
        path, item = queue.popleft()
        if id(item) in known:
            continue
        known.add(id(item))
        left -= 1
        yield path, item
        for step, part in _parts(item, kinds[type(item)]):
            if id(part) not in known and not kinds[type(part)].is_leaf:
                queue.append((path + step, part))


class _Kinds(dict[type, _Kind]):
    """The kinds of the classes that a walk meets. It keeps classes alive only while it is there."""

    def __missing__(self, kind: type) -> _Kind:
        found = _KNOWN_KINDS.get(kind)
        if found is None:
            found = _KNOWN_KINDS[kind] = _kind_of(kind)
        self[kind] = found
        return found


_KNOWN_KINDS: WeakKeyDictionary[type, _Kind] = WeakKeyDictionary()


def _kind_of(kind: type) -> _Kind:
    is_leaf = (
        issubclass(kind, _LEAVES)
        or hasattr(kind, "__array__")
        or str(kind.__module__).startswith(_OF_THE_RUN)
    )
    inner = next((inner for classes, inner in _INNER if issubclass(kind, classes)), None)
    slots = (
        (place, name)
        for place, base in enumerate(kind.__mro__)
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    )
    left_out = _OF_TORCH if issubclass(kind, torch.nn.Module) else frozenset()
    if issubclass(kind, DataLoader):
        left_out |= {"_iterator"}
    return _Kind(is_leaf, inner, tuple(slots), left_out)


def _parts(item: Any, kind: _Kind) -> Iterator[tuple[str, Any]]:
    """Give what an object holds, with the step that leads there."""
    if kind.inner is not None:
        yield from kind.inner(item)
    try:
        own = object.__getattribute__(item, "__dict__")
    except AttributeError:  # all of it is in slots
        own = {}
    for name, part in tuple(own.items()):
        if name not in kind.left_out:
            yield f".{name}", part
    for place, name in kind.slots:
        try:
            yield f".{name}", vars(type(item).__mro__[place])[name].__get__(item)
        except AttributeError:  # a slot that is empty
            continue


def _in_dict(item: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, part in islice(item.items(), _MOST_ITEMS):
        if isinstance(key, str | int):
            yield f"[{key!r}]", part


def _in_sequence(item: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"[{place}]", part) for place, part in enumerate(islice(item, _MOST_ITEMS)))


def _in_function(item: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    yield from ((".__defaults__", item.__defaults__), (".__kwdefaults__", item.__kwdefaults__))


def _in_module(item: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Give the children of a module of torch."""
    return ((f".{name}", part) for name, part in item._modules.items())  # noqa: SLF001 - as it is


_INNER: tuple[tuple[Any, Callable[[Any], Iterable[tuple[str, Any]]]], ...] = (
    (dict, _in_dict),
    ((list, tuple, set, frozenset, deque), _in_sequence),
    (FunctionType, _in_function),
    (MethodType, lambda item: ((".__self__", item.__self__), (".__func__", item.__func__))),
    (BuiltinMethodType, lambda item: ((".__self__", item.__self__),)),
    (
        functools.partial,
        lambda item: (
            (".func", item.func), (".args", item.args), (".keywords", item.keywords),
        ),
    ),
    (torch.nn.Module, _in_module),
)  # fmt: skip
