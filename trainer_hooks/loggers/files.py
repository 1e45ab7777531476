"""How a metrics file is created, continued, added to and cut."""

from __future__ import annotations

import csv
import os
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import replace_file
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import TextIO

__all__ = [
    "STEP",
    "append_rows",
    "continue_csv",
    "create_csv",
    "csv_writer",
    "cut_csv",
    "free_name",
    "holds_rows",
    "without_gaps",
]

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


def continue_csv(path: Path) -> tuple[list[str], int, list[str]]:
    """Return the metrics, the number of rows and the last row of a file that is to be continued.

    A row that was cut off is dropped.
    """
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.truncate(path, whole)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [STEP])
        rows, last = 0, list[str]()
        for row in reader:
            rows, last = rows + 1, row
    if header[0] != STEP:
        raise OptionError(
            f"version of CSVLogger: {path} was not written by a CSVLogger (its first column is "
            f"{header[0]!r}, not {STEP!r}). Choose another version or move that file away."
        )
    if not whole:
        path.write_text(f"{STEP}\n", encoding="utf-8")
    return header[1:], rows, last


def append_rows(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a file, all of them or none."""
    size = path.stat().st_size
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            csv_writer(file).writerows(rows)
    except OSError:
        os.truncate(path, size)  # which a full disk allows
        raise


def holds_rows(path: Path, rows: int, last: Sequence[str]) -> bool:
    """Return whether a file has so many rows, and the last of those has these cells."""
    _, kept, _ = _read(path, rows)
    return len(kept) == rows and (not kept or without_gaps(kept[-1]) == without_gaps(last))


def cut_csv(path: Path, rows: int) -> None:
    """Leave the first rows of a file alone; those after them are moved to a file beside it."""
    header, kept, surplus = _read(path, rows)
    if surplus:
        _write_all(free_name(path, "after_resume"), [header, *surplus])
        _write_all(path, [header, *kept])


def _read(path: Path, rows: int) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return a file's header, so many rows, and the rows after those."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [STEP])
        return header, list(islice(reader, rows)), list(reader)


def without_gaps(cells: Sequence[str]) -> list[str]:
    """Return a row without the empty cells at its end, which columns that came later gave it."""
    count = len(cells)
    while count and cells[count - 1] == "":
        count -= 1
    return list(cells[:count])


def free_name(path: Path, what: str) -> Path:
    """Return the path of a file beside `path` that is not there, as `metrics.<what>_0.csv`."""
    names = (f"{path.stem}.{what}_{number}{path.suffix}" for number in count())
    return next(found for found in map(path.with_name, names) if not found.exists())


def _write_all(path: Path, rows: list[list[str]]) -> None:
    replace_file(path, lambda file: csv_writer(file).writerows(rows))


def csv_writer(file: TextIO) -> Any:
    """Return a writer of rows that end in a bare line feed."""
    return csv.writer(file, lineterminator="\n")
