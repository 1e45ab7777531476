"""Reading runs again and again: their files are read only where they have changed."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from trainer_hooks.cli.report.logged_run import files_signature, read_run, set_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainer_hooks.cli.report.logged_run import LoggedRun


class ChangedRunReader:
    """Reads a run as `read_run` does, from its files only where they have changed.

    Callers change the run that they are given: each gets a copy of its own.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[object, ...], tuple[object, bytes]] = {}

    def __call__(
        self, folder: Path, label: str, most: int, beside: Sequence[Path] = ()
    ) -> LoggedRun:
        """Return the run in a folder."""
        key = (folder, most, *beside)
        # before it is read: what is written meanwhile is a change
        signature = files_signature(folder)
        cached = self._read.get(key)
        if cached is not None:
            run: LoggedRun = pickle.loads(cached[1])
            if cached[0] == (signature, _of_earlier(run)):
                # a process that was killed writes nothing
                set_outcomes(run.starts)
                run.label = label
                return run
        run = read_run(folder, label, most, beside)
        self._read[key] = (signature, _of_earlier(run)), pickle.dumps(run)
        return run


def _of_earlier(run: LoggedRun) -> object:
    return [files_signature(folder) for folder in run.earlier]
