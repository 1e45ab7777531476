"""Public names that are loaded when they are first used."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["class_if_loaded", "loader_of"]


def class_if_loaded(module: str, name: str) -> type | tuple[type, ...]:
    """Return a class, for `isinstance`, or nothing where its module was never imported.

    What was never imported has no instances, so asking for them need not import it.
    """
    found = sys.modules.get(module)
    kind: type | tuple[type, ...] = () if found is None else getattr(found, name)
    return kind


def loader_of(
    package: str, homes: Mapping[str, str], moved: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names live in other modules.

    Args:
        package: the package's name.
        homes: the module of each name, below the package; an empty text where the name is that of
            a module in the package itself; the whole name of one elsewhere, after a colon.
        moved: the module that each name is imported from now, of names that were here.
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            if moved is not None and name in moved:
                from trainer_hooks.errors import MovedError

                raise MovedError(
                    f"{name!r} is no longer in {package}: it must be imported from where it is "
                    f"now. Write `from {moved[name]} import {name}`."
                )
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home:
            return importlib.import_module(f"{package}.{name}")
        module = home[1:] if home[0] == ":" else f"{package}.{home}"
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
