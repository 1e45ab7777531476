"""The frameworks whose code can be ported, and what of their names is here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from trainer_hooks.errors import TrainerHooksError, message_of

__all__ = ["SYSTEMS", "System", "missing"]


@dataclass(frozen=True, slots=True)
class System:
    """A framework.

    Attributes:
        roots: the packages that it is imported from, the longest names first.
        target: the package of its names here.
    """

    roots: tuple[str, ...]
    target: str

    def ported(self, module: str) -> str | None:
        """Return the module here that stands for one of the framework's; None for another's."""
        for root in self.roots:
            if module == root or module.startswith(f"{root}."):
                return self.target + module.removeprefix(root)
        return None


SYSTEMS = {
    "lightning": System(
        ("lightning.pytorch", "pytorch_lightning", "lightning"), "trainer_hooks.compat.lightning"
    ),
    "composer": System(("composer",), "trainer_hooks.compat.composer"),
    "accelerated": System(("pytorch_accelerated",), "trainer_hooks.compat.accelerated"),
}
"""By the word that `--from` takes."""


def missing(module: str, names: tuple[str, ...] = ()) -> str:
    """Return why a module here, or what is reached from it by a chain of names, is not there.

    Args:
        module: its name.
        names: attributes, each of the one before; what follows a value that is no module is not
            looked at.

    Returns:
        What to do instead; an empty text if all is there.
    """
    try:
        found: Any = importlib.import_module(module)
        for name in names:
            found = _attribute(found, name)
            if not isinstance(found, ModuleType):
                break
    except TrainerHooksError as error:  # which says what to use
        told = message_of(error)
        return told.partition(" is not in trainer_hooks: ")[2].rstrip(".") or told
    except (ImportError, AttributeError):
        return "there is nothing of that name here"
    return ""


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        return importlib.import_module(f"{module.__name__}.{name}")
