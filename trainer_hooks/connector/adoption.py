"""Adoption: the one gate for what is of other frameworks: callbacks, modules, data, loggers.

A class is recognised by the names in its ancestry, so no framework is imported to look. The names
are those of the entry points in a group; what one of them refers to is loaded on a match only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from importlib_metadata import EntryPoint

__all__ = ["ADAPTERS", "adopt", "find_adapter"]

ADAPTERS = "trainer_hooks.adapters"
"""The entry-point group of adapters. The name of an entry point is a class's, as `package.module.
Class`, the place of its definition; its value is a function that takes an instance of a subclass
and returns a Callback, or a Module, a DataModule or a Logger where it is the class of such."""

_ADOPTED: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""The adapter of each foreign object, by its id: an adapter keeps the object that it stands for."""


def adopt(item: Any, kind: type = Callback) -> Any:
    """Return the adapter of a foreign object, one for each; anything else as it is.

    Args:
        item: the object.
        kind: what its adapter must be to be of use here.

    Raises:
        CallbackError: its adapter cannot be loaded, or does not take it.
    """
    if isinstance(item, kind | type):
        return item
    known = _ADOPTED.get(id(item))
    if isinstance(known, kind):
        return known
    entry = find_adapter(type(item))
    if entry is None:
        return item
    adapter = _adapt(entry, item)
    if not isinstance(adapter, kind):
        raise CallbackError(
            f"adapter {entry.value!r} (entry point {entry.name!r} of the group {ADAPTERS!r}) "
            f"returned {adapter!r} for {type(item).__module__}.{type(item).__qualname__}: it must "
            f"return a trainer_hooks.{kind.__name__}, which is what is wanted here. Pass it where "
            "it belongs, or mend the adapter."
        )
    _ADOPTED[id(item)] = adapter
    return adapter


def find_adapter(kind: type) -> EntryPoint | None:
    """Return the entry point of the nearest ancestor of a class that has one, or None."""
    names = _ancestry(kind)
    if not names:
        return None
    registered = _registered()
    return next((registered[name] for name in names if name in registered), None)


def _ancestry(kind: type) -> list[str]:
    """Return the names of a class and of those it derives from, but Python's own."""
    return [
        f"{base.__module__}.{base.__qualname__}"
        for base in kind.__mro__
        if base.__module__ not in {"builtins", "abc", "typing"}
    ]


def _registered() -> Mapping[str, EntryPoint]:
    """Return the installed adapters by the name of the class that they are for."""
    from importlib_metadata import distributions

    found: dict[str, EntryPoint] = {}
    for distribution in distributions():
        # an editable installation may be there twice, and the first may be an old one
        if ADAPTERS in (distribution.read_text("entry_points.txt") or ""):
            for entry in distribution.entry_points.select(group=ADAPTERS):
                found.setdefault(entry.name, entry)
    return found


def _adapt(entry: EntryPoint, item: Any) -> Any:
    kind = f"{type(item).__module__}.{type(item).__qualname__}"
    where = f"adapter {entry.value!r} (entry point {entry.name!r} of the group {ADAPTERS!r})"
    try:
        adapt: Callable[[Any], Any] = entry.load()
    except Exception as error:
        raise CallbackError(
            f"{where}, which is to take {kind}, cannot be loaded: {described(error)}. Mend or "
            "update the package that brings it."
        ) from error
    return adapt(item)
