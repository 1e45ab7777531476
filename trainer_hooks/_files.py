"""Atomic writing of text files: whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TextIO

_MAX_NAME_BYTES = 255
"""Bytes that file systems allow for a file name."""


def hidden_beside(path: Path, ending: str, most: int = _MAX_NAME_BYTES) -> Path:
    """Return the path of a hidden file in the folder of `path`, named `.NAME` and the ending.

    Args:
        path: a file.
        ending: the end of the new name.
        most: bytes of the old name to keep; fewer if the new name would be too long.
    """
    room = min(most, _MAX_NAME_BYTES - len(f".{ending}".encode()))
    name = path.name.encode(errors="surrogateescape")
    shown = name[:room].decode(errors="ignore") if len(name) > room else path.name
    return path.with_name(f".{shown}{ending}")


def replace_file(path: Path, write: Callable[[TextIO], object]) -> None:
    """Replace a file atomically by one that `write` fills; on an error the old one stays."""
    # by hand: the library for it, atomicwrites, is no longer maintained
    temporary = hidden_beside(path, f".{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            write(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
