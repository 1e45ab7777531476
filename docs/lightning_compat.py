"""The table of Lightning's names in `trainer_hooks.compat.lightning`: from that package."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from trainer_hooks.compat.not_offered import NotOfferedError

__all__ = ["lightning_names_table"]

_NAMES = Path(__file__).with_name("lightning_names.json")
_PACKAGE = "trainer_hooks.compat.lightning"


def lightning_names_table() -> list[str]:
    """Return a row for each documented module: its names, and the replacements of the others.

    Raises:
        ValueError: a name is neither there nor refused with a word.
    """
    modules = json.loads(_NAMES.read_text(encoding="utf-8"))["modules"]
    rows = ["| from | names | not offered |", "|---|---|---|"]
    for module, names in modules.items():
        told = [_told(module, name) for name in names]
        here = ", ".join(f"`{name}`" for name, instead in told if not instead)
        others = "; ".join(f"`{name}`: {instead}" for name, instead in told if instead)
        rows.append(f"| `{module or 'the package'}` | {here} | {others} |")
    return rows


def _told(module: str, name: str) -> tuple[str, str]:
    """Return a name and, if it is not offered, its replacement."""
    found = importlib.import_module(f"{_PACKAGE}.{module}".rstrip("."))
    try:
        getattr(found, name)
    except NotOfferedError as error:
        return name, str(error).partition(" is not in trainer_hooks: ")[2].rstrip(".")
    except AttributeError as error:
        raise ValueError(f"{module}.{name} of Lightning: offer it, or refuse it.") from error
    return name, ""
