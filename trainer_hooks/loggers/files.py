"""How a logger's files are created and continued."""

from __future__ import annotations

import csv
import os
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

__all__ = ["STEP", "continue_csv", "create_csv", "csv_writer"]

STEP = "step"
"""The first column of a metrics file."""


def create_csv(path: Path) -> bool:
    """Create a metrics file without columns; return False if there is one."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(f"{STEP}\n")
    except FileExistsError:
        return False
    return True


def continue_csv(path: Path) -> list[str]:
    """Return the metrics of a file that is to be continued; a row that was cut off is dropped."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.truncate(path, whole)
    with path.open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file), [STEP])
    if header[0] != STEP:
        raise OptionError(
            f"version of CSVLogger: {path} was not written by a CSVLogger (its first column is "
            f"{header[0]!r}, not {STEP!r}). Choose another version or move that file away."
        )
    if not whole:
        path.write_text(f"{STEP}\n", encoding="utf-8")
    return header[1:]


def csv_writer(file: TextIO) -> Any:
    """Return a writer of rows that end in a bare line feed."""
    return csv.writer(file, lineterminator="\n")
