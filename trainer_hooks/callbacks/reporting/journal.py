"""Journal: a file of JSON lines that grows, and of which a killed process leaves all but a line."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["JOURNAL", "Journal"]

JOURNAL = "run.jsonl"
"""The journal's name in a run's folder."""

_RIGHTS = 0o666


class Journal:
    """Add records to a file, each as one line and by one write, so that none is half of another's.

    Nothing is kept open in between. A line that a killed process cut off is ended first.

    Args:
        path: the file; its folder is made with the first record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_begun = False

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record; what JSON has no form for is written as its text.

        Raises:
            OSError: it cannot be written.
        """
        line = json.dumps(record, default=str).encode() + b"\n"
        if not self._is_begun:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _RIGHTS)
        try:
            if not self._is_begun and _is_cut_off(file):
                line = b"\n" + line
            while line:
                line = line[os.write(file, line) :]
        finally:
            os.close(file)
        self._is_begun = True


def _is_cut_off(file: int) -> bool:
    """Return whether a file's last line has no end."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"
