"""View: an object under the names that another framework has for it."""

from __future__ import annotations

import sys
from typing import Any

from trainer_hooks.hooks import place_in_work

__all__ = ["View", "lacking"]


class View:
    """Stand for an object under another framework's names; what has no such name is passed on.

    Args:
        target: the object.
    """

    __slots__ = ("__weakref__", "view_target")

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "view_target", target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.view_target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = getattr(type(self), name, None)
        if isinstance(own, property):
            object.__setattr__(self, name, value)
        else:
            setattr(self.view_target, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.view_target, name)

    def __dir__(self) -> list[str]:
        """Return the names of both."""
        return sorted({*object.__dir__(self), *dir(self.view_target)})

    def __repr__(self) -> str:
        """Show what it stands for."""
        return repr(self.view_target)


def lacking(owner: str, framework: str, name: str) -> AttributeError:
    """Return the error for an attribute that a guest looked for, and that is not here.

    Args:
        owner: of what, in words.
        framework: whose.
        name: the attribute's.
    """
    where = place_in_work(sys._getframe(1))  # noqa: SLF001 - documented
    asked = f", which {where} looked for," if where else ""
    return AttributeError(
        f"{name!r} of {framework}'s {owner}{asked} has no counterpart in trainer_hooks. Run the "
        f"callback in {framework}'s own Trainer, or override the method of it that needs this.",
        name=name,
    )
