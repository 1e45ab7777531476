"""What a module, data module or callback defines itself."""

from __future__ import annotations

from typing import Any

from trainer_hooks.callback import Callback
from trainer_hooks.errors import ModuleError, nearest
from trainer_hooks.module import DataModule, Module

__all__ = ["is_overridden"]


def is_overridden(
    method_name: str, instance: object | None = None, parent: type[Any] | None = None
) -> bool:
    """Return whether an object has a method of its own, in its class or on itself.

    Args:
        method_name: the method, as `"training_step"`.
        instance: the object; of None nothing is overridden.
        parent: the class whose method it would be otherwise; `Module`, `DataModule` or `Callback`
            unless given.

    Raises:
        ModuleError: the object is none of them and `parent` is not given, or that has no such
            method.
    """
    if instance is None:
        return False
    if parent is None:
        kinds = (Module, DataModule, Callback)
        parent = next((kind for kind in kinds if isinstance(instance, kind)), None)
    if parent is None:
        raise ModuleError(
            f"is_overridden({method_name!r}, {type(instance).__qualname__}): it is no Module, "
            "DataModule or Callback. Pass parent=, the class that defines the method first."
        )
    if not hasattr(parent, method_name):
        raise ModuleError(
            f"is_overridden({method_name!r}): {parent.__qualname__} has no such method."
            f"{nearest(method_name, dir(parent))}"
        )
    own = vars(instance).get(method_name, getattr(type(instance), method_name, None))
    return own is not None and own is not getattr(parent, method_name)
