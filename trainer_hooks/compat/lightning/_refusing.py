"""Names of Lightning that are not here, each with what to use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NotOfferedError", "refusing"]

_PREFIX = "trainer_hooks.compat.lightning"


class NotOfferedError(TrainerHooksError, ImportError):
    """Raised where a name of Lightning is used that is not here; it says what to use instead."""


def refusing(
    module: str, instead: Mapping[str, str], others: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that lacks some of Lightning's names.

    Args:
        module: its name.
        instead: by name what to use.
        others: returns the names that are there, and are loaded when they are first used.
    """

    def refuse(name: str) -> Any:
        place = module.replace(_PREFIX, "lightning.pytorch")
        if name in instead:
            raise NotOfferedError(f"{place}.{name} is not in trainer_hooks: {instead[name]}.")
        if others is not None:
            return others(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse
