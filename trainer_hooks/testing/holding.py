"""What a callback holds: its attributes, and what hangs on them, as values to compare.

The rules, of which there are few:

- numbers, texts, dates, paths and the like are themselves; tensors and arrays are copied;
- lists, tuples, sets, deques and dicts are gone through item by item;
- a random generator is its state;
- an object with a `state_dict` is what that returns, but for a module of torch;
- any other object is its attributes and slots, unless its class is Python's, torch's or NumPy's, as
  that of a lock, a file, a function or a loader: of those only the class counts;
- the trainer, the module that it trains, and whatever else belongs to the run, is left out.
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

__all__ = ["Holdings", "holdings", "results"]

Holdings = dict[str, Any]

_VALUES = (
    str, bytes, bytearray, int, float, complex, NoneType, enum.Enum, decimal.Decimal, Fraction,
    PurePath, dt.date, dt.time, dt.timedelta, dt.tzinfo, range, slice, torch.dtype, torch.device,
    torch.Size,
)  # fmt: skip
_SETS = (set, frozenset)
_CONTAINERS = (dict, list, tuple, deque, *_SETS)
_BOOKKEEPING = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
"""What every module of torch has, and is no value."""
_OF_THE_RUN = tuple(
    f"trainer_hooks.{room}"
    for room in (
        "checkpoint", "connector", "context", "data", "hooks", "loggers", "loops", "metrics",
        "runtime", "trainer",
    )
)  # fmt: skip
_MOST = 5000
"""Objects that are gone through for one callback."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is known of an object beside its parts: its class."""

    name: str

    def __repr__(self) -> str:
        return f"an object of {self.name}"


def holdings(callback: Callback, module: nn.Module, names: Collection[str] = ()) -> Holdings:
    """Return what a callback holds, by the attributes that lead there, as in `"books.best"`.

    Args:
        callback: the callback.
        module: the module that is trained, which is left out.
        names: attributes that are left out, too.
    """
    walk = _Walk({id(part) for part in module.modules()})
    return dict(walk.attributes(callback, "", names))


def results(callback: Callback, module: nn.Module) -> Holdings:
    """Return what others may read of a callback: its public attributes and properties.

    Args:
        callback: the callback.
        module: the module that is trained, which is left out.
    """
    held = holdings(callback, module, [name for name in vars(callback) if name.startswith("_")])
    walk = _Walk({id(part) for part in module.modules()})
    for name in set(dir(type(callback))) - set(dir(Callback)) - set(held):
        if _is_property(inspect.getattr_static(callback, name)):
            with contextlib.suppress(Exception):  # it may have nothing to say at this moment
                held |= walk.one(name, getattr(callback, name))
    return {
        place: value
        for place, value in held.items()
        if not any(step.startswith("_") for step in place.split("."))
    }


def _is_property(member: Any) -> bool:
    """Return whether a member of a class is a value that is worked out when it is asked for."""
    return (
        hasattr(type(member), "__get__") and not callable(member) and not inspect.isroutine(member)
    )


class _Walk:
    """One walk through what a callback holds.

    Args:
        left_out: ids of objects that are not its own.
    """

    def __init__(self, left_out: set[int]) -> None:
        self._closed = left_out
        self._left = _MOST

    def attributes(
        self, owner: Any, path: str, left_out: Collection[str] = ()
    ) -> Iterator[tuple[str, Any]]:
        """Give an object's attributes, and theirs, each with the names that lead to it.

        An object that is reached in two ways is given once.
        """
        self._closed.add(id(owner))
        for name, value in sorted(_named(owner), key=itemgetter(0)):
            if name not in left_out:
                yield from self.one(f"{path}{name}", value).items()

    def one(self, place: str, value: Any) -> Holdings:
        """Return a value and what hangs on it; nothing if it is left out."""
        if self._is_left_out(value):
            return {}
        if _is_open(value):
            kind = _Kind(type(value).__name__)
            return {place: kind, **dict(self.attributes(value, f"{place}."))}
        return {place: self._value(value)}

    def _is_left_out(self, value: Any) -> bool:
        """Return whether a value belongs to the run, is what we are in, or one too many."""
        self._left -= 1
        return (
            self._left < 0
            or id(value) in self._closed
            or str(type(value).__module__).startswith(_OF_THE_RUN)
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Size):  # a tuple whose items are no longer looked at
            return tuple(value)
        if isinstance(value, _VALUES):
            return value
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
            except Exception:  # noqa: BLE001 - its time may be another one; its attributes will do
                return dict(self.attributes(value, ""))
        if isinstance(value, _CONTAINERS):
            return self._items(value)
        if _is_open(value):
            return {"": _Kind(type(value).__name__), **dict(self.attributes(value, ""))}
        return _Kind(type(value).__name__)

    def _items(self, value: Any) -> Any:
        """Return a container with what it holds; keys and members without a value are left out."""
        self._closed.add(id(value))
        known = (*_VALUES, tuple)
        held: Any
        if isinstance(value, dict):
            held = {
                key: self._value(item)
                for key, item in value.items()
                if isinstance(key, known) and not self._is_left_out(item)
            }
        elif isinstance(value, _SETS):
            held = {item for item in value if isinstance(item, known)}
        else:
            held = [self._value(item) for item in value if not self._is_left_out(item)]
        self._closed.discard(id(value))
        return held


def _named(owner: Any) -> Iterator[tuple[str, Any]]:
    """Give an object's attributes and filled slots, by name."""
    for name, value in getattr(owner, "__dict__", {}).items():
        if not (isinstance(owner, nn.Module) and name in _BOOKKEEPING):
            yield name, value
    for kind in type(owner).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):
                try:
                    yield name, member.__get__(owner)
                except AttributeError:  # a slot that is empty
                    continue


def _has_state(value: Any) -> bool:
    """Return whether an object says itself what of it is to be kept."""
    # of a module of torch that would be too little: what metrics count is not in it
    return callable(getattr(type(value), "state_dict", None)) and not isinstance(value, nn.Module)


def _is_open(value: Any) -> bool:
    """Return whether an object is its attributes: one of a class that somebody wrote."""
    if isinstance(value, nn.Module | SimpleNamespace):
        return True
    if isinstance(value, (*_VALUES, *_CONTAINERS, type)) or _has_state(value):
        return False
    room = str(type(value).__module__).partition(".")[0]
    return room not in sys.stdlib_module_names and room not in {"torch", "numpy"}
