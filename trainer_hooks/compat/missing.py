"""Stand-ins for names of other frameworks that trainer_hooks does not offer, for ported code.

`trainer-hooks port` writes these imports, so that a file whose imports hold such a name can be
imported. The line that uses the name raises `NotOfferedError`, which names the replacement::

    from trainer_hooks.compat.missing.lightning.plugins import DeepSpeedPrecision

A path below this package is that of `trainer_hooks.compat`. A stand-in may be used in annotations,
and nothing is an instance of it. A name that a later release of trainer_hooks offers is that name.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from trainer_hooks._lazy import ModuleFinder, lazy_module
from trainer_hooks.compat.not_offered import NotOfferedError, NotOfferedImportError, refusal

if TYPE_CHECKING:
    from types import ModuleType

__all__: list[str] = []

__path__: list[str] = []


class MissingName:
    """A name that trainer_hooks does not offer: each use of it raises `NotOfferedError`.

    A subclass can be defined; making an object of it raises the error.

    Args:
        message: the error's message.
    """

    def __init__(self, message: str) -> None:
        self._message = message

    def __repr__(self) -> str:
        return f"<{self._message}>"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotOfferedImportError(self._message)

    __call__ = __bool__ = __iter__ = __len__ = __enter__ = __contains__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __sub__ = __int__ = __float__ = __index__ = (
        _refuse
    )

    def __getattr__(self, name: str) -> Any:
        # Python itself asks objects for names such as __wrapped__, and expects this error
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type]:
        # a class of its kind can be defined, so that the rest of its file is there
        return (type("MissingBase", (), {"__new__": self._refuse}),)

    # what follows serves annotations and checks of types, which hold without the class

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __getitem__(self, item: object) -> MissingName:
        return self

    def __or__(self, other: object) -> Any:
        return Any

    __ror__ = __or__


def _value(path: str, name: str) -> Any:
    """Return a name of a compatibility module, or its stand-in.

    Args:
        path: the module's path below `trainer_hooks.compat`.
        name: the name.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    module = f"trainer_hooks.compat.{path}"
    try:
        return getattr(importlib.import_module(module), name)
    except NotOfferedError as error:
        return MissingName(str(error))
    except (ImportError, AttributeError):
        return MissingName(refusal(module, name, "there is nothing of that name here"))


def _make(path: str) -> ModuleType:
    return lazy_module(
        f"{__name__}.{path}", f"Stand-ins for names of `{path}`.", [], partial(_value, path)
    )


ModuleFinder(__name__, _make).install()
