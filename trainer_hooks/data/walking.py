"""What hangs on an object: the objects that it keeps, however deep, with a name for each place."""

from __future__ import annotations

import functools
import logging
from collections import deque
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

import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def walk(name: str, owner: Any, known: set[int]) -> Iterator[tuple[str, Any]]:
    """Give an object and what hangs on it, each once, with its place; the nearest come first.

    Attributes, slots, items, and what functions, partials and bound methods hold are followed.
    Tensors, modules of Python, classes, loggers and the trainer are not looked into.

    Args:
        name: what to call the owner.
        owner: where to begin.
        known: ids of objects that are left out; those that were seen are added.
    """
    left = _MOST_OBJECTS
    queue = deque([] if _is_leaf(owner) else [(name, owner)])
    while queue and left:
        path, item = queue.popleft()
        if id(item) in known:
            continue
        known.add(id(item))
        left -= 1
        yield path, item
        for step, part in _parts(item):
            if id(part) not in known and not _is_leaf(part):
                queue.append((path + step, part))


def _is_leaf(item: Any) -> bool:
    """Return whether an object is data, code or a name, and nothing that keeps another one."""
    kind = type(item)
    return (
        issubclass(kind, _LEAVES)
        or hasattr(kind, "__array__")
        or str(kind.__module__).startswith(_OF_THE_RUN)
    )


def _parts(item: Any) -> Iterator[tuple[str, Any]]:
    """Give what an object holds, with the step that leads there."""
    kind = type(item)
    if issubclass(kind, dict):
        named = islice(item.items(), _MOST_ITEMS)
        yield from ((f"[{key!r}]", part) for key, part in named if isinstance(key, str | int))
    elif issubclass(kind, list | tuple | set | frozenset | deque):
        yield from ((f"[{place}]", part) for place, part in enumerate(islice(item, _MOST_ITEMS)))
    elif issubclass(kind, FunctionType):
        yield from zip(
            (f".{name}" for name in item.__code__.co_freevars), _contents(item), strict=True
        )
        yield from ((".__defaults__", item.__defaults__), (".__kwdefaults__", item.__kwdefaults__))
    elif issubclass(kind, MethodType):
        yield from ((".__self__", item.__self__), (".__func__", item.__func__))
    elif issubclass(kind, BuiltinMethodType):
        yield ".__self__", item.__self__
    elif issubclass(kind, functools.partial):
        yield from ((".func", item.func), (".args", item.args), (".keywords", item.keywords))
    yield from ((f".{name}", part) for name, part in _attributes(item))


def _contents(function: FunctionType) -> Iterator[Any]:
    """Give what a function's free variables refer to; None for those that are not set yet."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            yield None


def _attributes(item: Any) -> Iterator[tuple[str, Any]]:
    """Give an object's attributes and slots, and the children of a module of torch."""
    try:
        own = dict(object.__getattribute__(item, "__dict__"))
    except AttributeError:  # all of it is in slots
        own = {}
    if isinstance(item, torch.nn.Module):
        yield from own.get("_modules", {}).items()
        own = {name: part for name, part in own.items() if name not in _OF_TORCH}
    if isinstance(item, DataLoader):
        own.pop("_iterator", None)
    yield from own.items()
    for kind in type(item).__mro__:
        if "__slots__" not in vars(kind):
            continue
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):
                try:
                    yield name, member.__get__(item)
                except AttributeError:  # a slot that is empty
                    continue
