"""Composer's callbacks; those that `trainer_hooks.callbacks` has too are subclasses of its own."""

from __future__ import annotations

from typing import Any

from trainer_hooks._lazy import stub_homes
from trainer_hooks.compat.composer.modules import attach_stub

_load, __dir__, __all__ = attach_stub(__name__)
_SHARED = [
    name for name, home in stub_homes(__name__).items() if home == ":trainer_hooks.callbacks"
]


def __getattr__(name: str) -> Any:
    if name not in _SHARED:
        return _load(name)
    # here, since it is loaded only where a callback is used
    from trainer_hooks import callbacks
    from trainer_hooks.compat.composer.core.built_in import built_in

    made = built_in(getattr(callbacks, name), __name__)
    # the next access finds it, so that there is one class
    return globals().setdefault(name, made)
