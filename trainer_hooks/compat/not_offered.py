"""Errors for names of other frameworks that trainer_hooks does not offer, with the replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NotOfferedError", "not_offered_attribute", "refusing_getattr"]

_ORIGINAL_PACKAGES = {
    # the longest first: Fabric is a package beside lightning.pytorch
    "trainer_hooks.compat.lightning.fabric": "lightning.fabric",
    "trainer_hooks.compat.lightning": "lightning.pytorch",
    "trainer_hooks.compat.composer": "composer",
}
"""The package of the other framework, by its compatibility package."""


# no AttributeError: `from module import name` would replace it by an ImportError of Python's own,
# which names no replacement
class NotOfferedError(TrainerHooksError, ImportError):
    """Raised for a name of another framework that is not offered; it names the replacement."""


def refusing_getattr(
    module: str, instead: Mapping[str, str], others: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that does not offer all names of the other framework's.

    Args:
        module: the module's name.
        instead: the replacement of each name that is not offered, for the error; that of `*` is for
            every name that `others` does not have.
        others: a `__getattr__` for the other names, which are loaded when they are first used.
    """

    def refuse(name: str) -> Any:
        advice = instead.get(name)
        if advice is None:
            try:
                if others is not None:
                    return others(name)
                raise AttributeError(f"module {module!r} has no attribute {name!r}")
            except AttributeError:
                # Python itself asks modules for names such as __path__, and expects this error
                if "*" not in instead or name.startswith("__"):
                    raise
                advice = instead["*"]
        package = next(prefix for prefix in _ORIGINAL_PACKAGES if module.startswith(prefix))
        original = _ORIGINAL_PACKAGES[package] + module.removeprefix(package)
        raise NotOfferedError(f"{original}.{name} is not in trainer_hooks: {advice}.")

    return refuse


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
