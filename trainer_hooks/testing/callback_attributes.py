"""Read the attributes of a callback, and the attributes of their objects, as values to compare.

The rules:

- numbers, texts, dates and paths are taken as they are; tensors and arrays are copied;
- lists, tuples, sets, deques and dicts are read item by item;
- a random generator is read as its state;
- an object with a `state_dict` is read as what that returns, unless it is a module of torch;
- any other object is read as its attributes and slots, unless its class is Python's, torch's or
  NumPy's, such as a lock, a file, a function or a loader: of those only the class is compared;
- the trainer, the trained module and all other objects of the run are left out.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import decimal
import enum
import inspect
import random
import sys
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from pathlib import PurePath
from types import MemberDescriptorType, NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer_hooks.callback import Callback

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

AttributeValues = dict[str, Any]

_VALUES = (
    str, bytes, bytearray, int, float, complex, NoneType, enum.Enum, decimal.Decimal, Fraction,
    PurePath, dt.date, dt.time, dt.timedelta, dt.tzinfo, range, slice, torch.dtype, torch.device,
    torch.Size,
)  # fmt: skip
_SETS = (set, frozenset)
_CONTAINERS = (dict, list, tuple, deque, *_SETS)
_BOOKKEEPING = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
"""Attributes that torch gives every module for its own use."""
_RUN_PACKAGES = tuple(
    f"trainer_hooks.{package}"
    for package in (
        "checkpoint", "connector", "context", "data", "hooks", "loggers", "loops", "metrics",
        "runtime", "trainer",
    )
)  # fmt: skip
"""Packages whose objects belong to the run, and not to the callback that refers to them."""
_MAX_OBJECTS = 5000
"""Objects that are read for one callback; the others are left out."""


@dataclass(frozen=True, slots=True)
class _OpaqueObject:
    """A stand-in for an object of which only the class is compared."""

    name: str

    def __repr__(self) -> str:
        return f"an object of {self.name}"


def attribute_values(
    callback: Callback, module: nn.Module, names: Collection[str] = ()
) -> AttributeValues:
    """Return a callback's attribute values by the names that lead to them, as `"history.best"`.

    Args:
        callback: the callback.
        module: the trained module, which is left out.
        names: names of attributes that are left out, too.
    """
    # all submodules too: a callback may hold one of them, whose weights change in training
    walk = _AttributeWalk({id(part) for part in module.modules()})
    return dict(walk.attributes(callback, "", names))


def public_values(callback: Callback, module: nn.Module) -> AttributeValues:
    """Return the values of a callback's public attributes and properties, by name.

    Args:
        callback: the callback.
        module: the trained module, which is left out.
    """
    values = attribute_values(
        callback, module, [name for name in vars(callback) if name.startswith("_")]
    )
    walk = _AttributeWalk({id(part) for part in module.modules()})
    for name in set(dir(type(callback))) - set(dir(Callback)) - set(values):
        # `getattr_static`: reading a property here would run it outside of the `suppress`
        if _is_property(inspect.getattr_static(callback, name)):
            with contextlib.suppress(Exception):  # a property may raise outside of a run
                values |= walk.read(name, getattr(callback, name))
    return {
        path: value
        for path, value in values.items()
        if not any(name.startswith("_") for name in path.split("."))
    }


def _is_property(member: Any) -> bool:
    """Return whether a member of a class is a property: a descriptor that is no method."""
    return (
        # not `property` alone: cached properties and descriptors of libraries count, too
        hasattr(type(member), "__get__") and not callable(member) and not inspect.isroutine(member)
    )


class _AttributeWalk:
    """A walk through the objects that a callback refers to.

    Args:
        left_out: ids of objects that are left out.
    """

    def __init__(self, left_out: set[int]) -> None:
        # also the ids of the objects on the way to the current one, so that a cycle ends
        self._closed = left_out
        self._objects_left = _MAX_OBJECTS

    def attributes(
        self, owner: Any, path: str, left_out: Collection[str] = ()
    ) -> Iterator[tuple[str, Any]]:
        """Yield an object's attribute values, and those of its parts, each with its path.

        An object that is reached by two paths is read once.
        """
        self._closed.add(id(owner))
        # sorted, so that an object with two paths is read at the same one in each run
        for name, value in sorted(_attributes_of(owner), key=itemgetter(0)):
            if name not in left_out:
                yield from self.read(f"{path}{name}", value).items()

    def read(self, path: str, value: Any) -> AttributeValues:
        """Return the value at a path and the values of its parts; nothing if it is left out."""
        if self._is_left_out(value):
            return {}
        if _is_read_by_attributes(value):
            opaque = _OpaqueObject(type(value).__name__)
            return {path: opaque, **dict(self.attributes(value, f"{path}."))}
        return {path: self._value(value)}

    def _is_left_out(self, value: Any) -> bool:
        """Return whether a value belongs to the run, contains itself, or is one too many."""
        self._objects_left -= 1
        return (
            self._objects_left < 0
            or id(value) in self._closed
            or str(type(value).__module__).startswith(_RUN_PACKAGES)
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Size):  # its items are ints and need no reading
            return tuple(value)
        if isinstance(value, _VALUES):
            return value
        # a copy, since training goes on to change it in place
        if isinstance(value, torch.Tensor):
            return value.detach().clone()
        if isinstance(value, torch.Generator):
            return value.get_state()
        if isinstance(value, random.Random):
            return value.getstate()
        if str(type(value).__module__).startswith("numpy.random"):
            return copy.deepcopy(getattr(value, "bit_generator", value).state)
        if type(value).__module__ == "numpy":
            return copy.deepcopy(value)
        if _has_state(value):
            try:
                return self._items(value.state_dict())
            except Exception:  # noqa: BLE001 - it may raise at this moment; its attributes will do
                return dict(self.attributes(value, ""))
        if isinstance(value, _CONTAINERS):
            return self._items(value)
        if _is_read_by_attributes(value):
            return {"": _OpaqueObject(type(value).__name__), **dict(self.attributes(value, ""))}
        return _OpaqueObject(type(value).__name__)

    def _items(self, value: Any) -> Any:
        """Read a container's items; keys and set members that are no plain values are left out."""
        self._closed.add(id(value))
        plain = (*_VALUES, tuple)
        items: Any
        if isinstance(value, dict):
            items = {
                key: self._value(item)
                for key, item in value.items()
                if isinstance(key, plain) and not self._is_left_out(item)
            }
        elif isinstance(value, _SETS):
            items = {item for item in value if isinstance(item, plain)}
        else:
            items = [self._value(item) for item in value if not self._is_left_out(item)]
        # open again: a container that two attributes share is compared at both
        self._closed.discard(id(value))
        return items


def _attributes_of(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object's attributes and filled slots with their names."""
    for name, value in getattr(owner, "__dict__", {}).items():
        if not (isinstance(owner, nn.Module) and name in _BOOKKEEPING):
            yield name, value
    for kind in type(owner).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):
                try:
                    yield name, member.__get__(owner)
                except AttributeError:  # the slot is empty
                    continue


def _has_state(value: Any) -> bool:
    """Return whether an object is read by its `state_dict`."""
    # not a module of torch: its state_dict holds weights and buffers alone, not a metric's counts
    return callable(getattr(type(value), "state_dict", None)) and not isinstance(value, nn.Module)


def _is_read_by_attributes(value: Any) -> bool:
    """Return whether an object is read as its attributes: its class is the author's own."""
    if isinstance(value, nn.Module | SimpleNamespace):
        return True
    if isinstance(value, (*_VALUES, *_CONTAINERS, type)) or _has_state(value):
        return False
    package = str(type(value).__module__).partition(".")[0]
    return package not in sys.stdlib_module_names and package not in {"torch", "numpy"}
