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


def loader_of(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names live in other modules.

    Args:
        package: the package's name.
        homes: the module of each name, below the package; an empty text where the name is that of
            a module in the package itself.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not homes[name]:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
