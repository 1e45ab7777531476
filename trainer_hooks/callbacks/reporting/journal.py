"""Journal: a file of JSON lines to which records are appended, whole even after a kill."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from trainer_hooks._system import O_BINARY, read_at
from trainer_hooks.checkpoint.paths import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trainer_hooks.loggers.base import Logger

JOURNAL = "run.jsonl"
"""The journal's file name in a run's folder."""

_FILE_MODE = 0o666


def journal_folder(loggers: Iterable[Logger]) -> str | None:
    """Return the folder of a run's journal and report: the first local one of a logger."""
    folders = (logger.log_dir for logger in loggers)
    return next((each for each in folders if each is not None and not is_remote(each)), None)


class Journal:
    """A file of JSON lines; each record is appended by a single write.

    Nothing is kept open in between. A last line that a killed process left incomplete gets its end
    first.

    Args:
        path: the file; its folder is made with the first record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._has_written = False

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record; a value that JSON cannot hold is written as its text.

        Raises:
            OSError: the file cannot be written.
        """
        line = json.dumps(record, default=str).encode() + b"\n"
        if not self._has_written:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        # O_APPEND: the records of two processes may alternate, but do not overwrite each other.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | O_BINARY
        file = os.open(self.path, flags, _FILE_MODE)
        try:
            # a kill may have cut off the last record: the next one must not continue its line
            if not self._has_written and _is_cut_off(file):
                line = b"\n" + line
            # the system may write a part only
            while line:
                line = line[os.write(file, line) :]
        finally:
            os.close(file)
        self._has_written = True


def _is_cut_off(file: int) -> bool:
    """Return whether a file's last line is incomplete."""
    size = os.fstat(file).st_size
    last = bytearray(1)
    return size > 0 and read_at(file, memoryview(last), size - 1) == 1 and last != b"\n"
