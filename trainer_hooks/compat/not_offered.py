"""Errors for names of other frameworks that trainer_hooks does not offer, with the replacement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "NotOfferedError",
    "NotOfferedImportError",
    "NotOfferedNameError",
    "not_offered_attribute",
    "refusal",
    "refused_rows",
    "refusing_getattr",
]

_ORIGINAL_PACKAGES = {
    # the longest first: Fabric is a package beside lightning.pytorch
    "trainer_hooks.compat.lightning.fabric": "lightning.fabric",
    "trainer_hooks.compat.lightning": "lightning.pytorch",
    "trainer_hooks.compat.composer": "composer",
    "trainer_hooks.compat.accelerated": "pytorch_accelerated",
}
"""The package of the other framework, by its compatibility package."""


class NotOfferedError(TrainerHooksError):
    """Raised for a name of another framework that is not offered; it names the replacement.

    It is an `AttributeError` where the name is read from its module, so that `hasattr` answers, and
    an `ImportError` where it is imported.
    """


class NotOfferedImportError(NotOfferedError, ImportError):
    """Raised by an import of a name that is not offered."""


class NotOfferedNameError(NotOfferedError, AttributeError):
    """Raised by reading a name that is not offered from its module."""


def refused_rows(file: str) -> list[tuple[str, str, str]]:
    """Return the names that a compatibility package does not offer: modules, names, the advice.

    They stand in `not_offered.toml`.

    Args:
        file: a file beside that one.
    """
    import tomllib

    table = tomllib.loads(Path(file).with_name("not_offered.toml").read_text(encoding="utf-8"))
    return [
        (modules, names, advice)
        for advice, refused in table.items()
        for names, modules in refused.items()
    ]


def refusal(module: str, name: str, advice: str) -> str:
    """Return the message for a name of a compatibility module that is not offered.

    Args:
        module: the compatibility module's name.
        name: the name in it.
        advice: what to write instead.
    """
    package = next((prefix for prefix in _ORIGINAL_PACKAGES if module.startswith(prefix)), "")
    original = _ORIGINAL_PACKAGES.get(package, "") + module.removeprefix(package)
    return f"{original}.{name} is not in trainer_hooks: {advice}."


def refusing_getattr(
    module: str, instead: Mapping[str, str], others: Callable[[str], Any]
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that does not offer all names of the other framework's.

    Args:
        module: the module's name.
        instead: the replacement of each name that is not offered, for the error.
        others: a `__getattr__` for the other names, which are loaded when they are first used.
    """

    def load(name: str) -> Any:
        if name in instead:
            raise NotOfferedNameError(refusal(module, name, instead[name]))
        return others(name)

    return load


def not_offered_attribute(owner: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object lacks; it names a replacement if any.

    Args:
        owner: the object.
        name: the attribute.
        instead: the replacement of each attribute that the other framework's object has.
    """
    class_name = type(owner).__name__
    if name in instead:
        message = f"{class_name}.{name} is not in trainer_hooks: {instead[name]}."
    else:
        message = f"{class_name} has no attribute {name!r}"
    # with these two, Python adds a similar name to the message if there is one
    return AttributeError(message, name=name, obj=owner)
