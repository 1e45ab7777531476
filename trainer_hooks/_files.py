"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TextIO

__all__ = ["replace_file"]


def replace_file(path: Path, write: Callable[[TextIO], object]) -> None:
    """Let `write` fill a file that takes the place of `path` whole or not at all."""
    # by hand: the library for it, atomicwrites, is no longer kept
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            write(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
