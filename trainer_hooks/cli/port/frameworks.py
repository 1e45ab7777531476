"""The frameworks whose code can be ported, and the counterparts of their names."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from trainer_hooks.errors import TrainerHooksError, error_message

__all__ = ["SYSTEMS", "PortableFramework", "missing_reason"]


@dataclass(frozen=True, slots=True)
class PortableFramework:
    """A framework whose import lines can be rewritten.

    Attributes:
        roots: the packages that it is imported from, the longest names first.
        target: the compatibility package with its names.
    """

    roots: tuple[str, ...]
    target: str

    def ported(self, module: str) -> str | None:
        """Return the counterpart of a module of the framework; None for any other module."""
        for root in self.roots:
            if module == root or module.startswith(f"{root}."):
                return self.target + module.removeprefix(root)
        return None


SYSTEMS = {
    "lightning": PortableFramework(
        ("lightning.pytorch", "pytorch_lightning", "lightning"), "trainer_hooks.compat.lightning"
    ),
    "composer": PortableFramework(("composer",), "trainer_hooks.compat.composer"),
    "accelerated": PortableFramework(("pytorch_accelerated",), "trainer_hooks.compat.accelerated"),
}
"""By the word that `--from` takes."""


def missing_reason(module: str, names: tuple[str, ...] = ()) -> str:
    """Return why a module of a compatibility package, or a chain of attributes of it, is missing.

    Args:
        module: the module's name.
        names: attributes, each of the one before; attributes of a value that is no module are not
            looked up.

    Returns:
        What to write instead; empty if everything is there.
    """
    try:
        value: Any = importlib.import_module(module)
        for name in names:
            value = _attribute(value, name)
            if not isinstance(value, ModuleType):
                break
    except TrainerHooksError as error:  # which says what to use
        told = error_message(error)
        return told.partition(" is not in trainer_hooks: ")[2].rstrip(".") or told
    except (ImportError, AttributeError):
        return "there is nothing of that name here"
    return ""


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        return importlib.import_module(f"{module.__name__}.{name}")
