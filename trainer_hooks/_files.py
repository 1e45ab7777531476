"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TextIO

__all__ = ["hidden_beside", "replace_file"]

_LONGEST = 255
"""Bytes that a file system allows a name."""


def hidden_beside(path: Path, ending: str, most: int = _LONGEST) -> Path:
    """Return a path beside `path` that is hidden, begins with its name, and has an ending.

    Args:
        path: a file.
        ending: what follows the name.
        most: bytes of the name to take, if there is room for as many.
    """
    room = min(most, _LONGEST - len(f".{ending}".encode()))
    name = path.name.encode(errors="surrogateescape")
    shown = name[:room].decode(errors="ignore") if len(name) > room else path.name
    return path.with_name(f".{shown}{ending}")


def replace_file(path: Path, write: Callable[[TextIO], object]) -> None:
    """Let `write` fill a file that takes the place of `path` whole or not at all."""
    # by hand: the library for it, atomicwrites, is no longer kept
    temporary = hidden_beside(path, f".{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            write(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
