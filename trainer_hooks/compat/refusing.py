"""Names of other frameworks that are not here, each with what to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NotOfferedError", "lacking", "refusing"]

_PLACES = {
    "trainer_hooks.compat.lightning": "lightning.pytorch",
    "trainer_hooks.compat.composer": "composer",
}
"""What stands for what, by the beginnings of modules' names."""


class NotOfferedError(TrainerHooksError, ImportError):
    """Raised where another framework's name is used that is not here; it says what to use."""


def refusing(
    module: str, instead: Mapping[str, str], others: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that lacks some of the names that it has there.

    Args:
        module: its name.
        instead: by name what to use.
        others: returns the names that are there, and are loaded when they are first used.
    """

    def refuse(name: str) -> Any:
        if name in instead:
            ours = next(prefix for prefix in _PLACES if module.startswith(prefix))
            place = _PLACES[ours] + module.removeprefix(ours)
            raise NotOfferedError(f"{place}.{name} is not in trainer_hooks: {instead[name]}.")
        if others is not None:
            return others(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse


def lacking(owner: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object has there, or that nobody knows.

    Args:
        owner: the object.
        name: the attribute.
        instead: by name what to use.
    """
    kind = type(owner).__name__
    if name in instead:
        return AttributeError(
            f"{kind}.{name} is not in trainer_hooks: {instead[name]}.", name=name, obj=owner
        )
    return AttributeError(f"{kind} has no attribute {name!r}", name=name, obj=owner)
