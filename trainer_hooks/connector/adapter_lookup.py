"""Look-up of adapters for foreign objects: callbacks, modules, data modules and loggers.

A class is recognised by the names of its ancestors, so that no framework is imported to find out.
The names are those of the entry points in one group; an entry point is loaded on a match only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, error_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from importlib_metadata import EntryPoint

ADAPTER_GROUP = "trainer_hooks.adapters"
"""The entry-point group of adapters.

The name of an entry point is that of a class, as `package.module.Class` where it is defined. Its
value is a function that takes an instance of a subclass and returns a Callback, or a Module, a
DataModule or a Logger for a class of that sort."""

_ADAPTERS_BY_ID: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""The adapter of each foreign object, by the object's id.

An adapter holds a reference to its object, so that an id in the table is not reused."""


def adapt(item: Any, wanted: type = Callback) -> Any:
    """Return the adapter of a foreign object, the same one each time; any other object as it is.

    Only `adapt_if_foreign` calls it, and imports this file for foreign objects alone.

    Args:
        item: the object.
        wanted: the class of which the adapter must be an instance.

    Raises:
        CallbackError: its adapter cannot be loaded, or does not take the object.
    """
    # a class is left to the caller, whose error says to pass an instance
    if isinstance(item, wanted | type):
        return item
    # the same adapter again: `remove_callback(foreign)` must find the one that was registered
    registered = _ADAPTERS_BY_ID.get(id(item))
    if isinstance(registered, wanted):
        return registered
    entry_point = find_adapter_entry_point(type(item))
    if entry_point is None:
        return item
    foreign = f"{type(item).__module__}.{type(item).__qualname__}"
    where = (
        f"adapter {entry_point.value!r} (entry point {entry_point.name!r} of the group "
        f"{ADAPTER_GROUP!r})"
    )
    try:
        make_adapter: Callable[[Any], Any] = entry_point.load()
    except Exception as error:
        raise CallbackError(
            f"{where}, which is to take {foreign}, cannot be loaded: {error_summary(error)}. Mend "
            "or update the package that brings it."
        ) from error
    adapter = make_adapter(item)
    if not isinstance(adapter, wanted):
        raise CallbackError(
            f"{where} returned {adapter!r} for {foreign}: it must return a "
            f"trainer_hooks.{wanted.__name__}, which is what is wanted here. Pass it where it "
            "belongs, or mend the adapter."
        )
    _ADAPTERS_BY_ID[id(item)] = adapter
    return adapter


def find_adapter_entry_point(foreign_class: type) -> EntryPoint | None:
    """Return the entry point of the nearest ancestor of a class that has one, or None."""
    names = [
        f"{base.__module__}.{base.__qualname__}"
        for base in foreign_class.__mro__
        if base.__module__ not in {"builtins", "abc", "typing"}
    ]
    if not names:
        return None
    registered = _installed_adapters()
    return next((registered[name] for name in names if name in registered), None)


def _installed_adapters() -> Mapping[str, EntryPoint]:
    """Return the installed adapters by the name of the class that they adapt."""
    from importlib_metadata import distributions

    adapters: dict[str, EntryPoint] = {}
    for distribution in distributions():
        # not entry_points(): it takes a distribution's first metadata only, and of an editable
        # installation that may be an old one without this group
        if ADAPTER_GROUP in (distribution.read_text("entry_points.txt") or ""):
            for entry_point in distribution.entry_points.select(group=ADAPTER_GROUP):
                # the first on sys.path wins, as it does in an import
                adapters.setdefault(entry_point.name, entry_point)
    return adapters
