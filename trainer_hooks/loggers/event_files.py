"""Event files of TensorBoard: how a folder is taken, and files are cut."""

from __future__ import annotations

import os
import shutil
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["MARK", "mark", "set_aside", "sizes_in", "truncate"]

_EVENTS = "tfevents"
MARK = ".tensorboard"
"""The name of the file that says of a folder that it is taken."""


def mark(path: Path) -> bool:
    """Make the file that says of its folder that it is taken; return False if it is there."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def sizes_in(folder: Path) -> dict[str, int]:
    """Return the sizes of a folder's event files."""
    return {path.name: path.stat().st_size for path in folder.glob(f"*{_EVENTS}*")}


def truncate(folder: Path, sizes: Mapping[str, int]) -> None:
    """Cut off what a writer that failed has written in part."""
    for name, size in sizes.items():
        path = folder / name
        if path.is_file() and path.stat().st_size > size:
            os.truncate(path, size)


def set_aside(path: Path, size: int | None) -> None:
    """Leave the first `size` bytes of an event file, and keep the whole under another name."""
    names = (path.name.replace(_EVENTS, f"after_resume_{number}") for number in count())
    whole = next(found for found in map(path.with_name, names) if not found.exists())
    if size is not None:
        shutil.copyfile(path, whole)
        os.truncate(path, size)
    else:
        path.replace(whole)
