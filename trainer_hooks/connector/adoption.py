"""Adoption: the one gate through which callbacks of other frameworks take part.

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
and returns a Callback."""

_ADOPTED: WeakValueDictionary[int, Callback] = WeakValueDictionary()
"""The adapter of each foreign object, by its id: an adapter keeps the object that it stands for."""


def adopt(item: Any) -> Any:
    """Return the adapter of a foreign callback, one for each; anything else as it is.

    Raises:
        CallbackError: its adapter cannot be loaded, or does not take it.
    """
    known = _ADOPTED.get(id(item))
    if known is not None:
        return known
    entry = find_adapter(type(item))
    if entry is None:
        return item
    adapter = _adapt(entry, item)
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
    from importlib_metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ADAPTERS)}


def _adapt(entry: EntryPoint, item: Any) -> Callback:
    kind = f"{type(item).__module__}.{type(item).__qualname__}"
    where = f"adapter {entry.value!r} (entry point {entry.name!r} of the group {ADAPTERS!r})"
    try:
        adapt: Callable[[Any], object] = entry.load()
    except Exception as error:
        raise CallbackError(
            f"{where}, which is to take {kind}, cannot be loaded: {described(error)}. Mend or "
            "update the package that brings it."
        ) from error
    adapter = adapt(item)
    if not isinstance(adapter, Callback):
        raise CallbackError(
            f"{where} returned {adapter!r} for {kind}: it must return a trainer_hooks.Callback. "
            "Mend or update the package that brings it."
        )
    return adapter
