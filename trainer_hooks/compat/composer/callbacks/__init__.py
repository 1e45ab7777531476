"""Composer's callbacks; those that `trainer_hooks.callbacks` has too are subclasses of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import attach_stub
from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _make_getattr(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    load = package_getattr(package, homes)

    def load_or_derive(name: str) -> Any:
        if homes.get(name) != ":trainer_hooks.callbacks":
            return load(name)
        # here, since it is loaded only where a callback is used
        from trainer_hooks import callbacks
        from trainer_hooks.compat.composer.core.built_in import built_in

        made = built_in(getattr(callbacks, name), package)
        # the next access finds it, so that there is one class
        return globals().setdefault(name, made)

    return load_or_derive


__getattr__, __dir__, __all__ = attach_stub(__name__, _make_getattr)
