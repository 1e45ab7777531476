"""A result file of MLPerf, which a run that is resumed goes on with."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ResultFile"]

_RUN_ID = "trainer_hooks_run"
"""The key of the line that says which run a file is of; the rules allow keys of one's own."""


class ResultFile:
    """Write the lines of a result by MLPerf's own logger, each of them at once.

    Args:
        path: the file; it is added to.
    """

    def __init__(self, path: Path) -> None:
        from mlperf_logging.mllog.mllog import MLLogger  # type: ignore[import-untyped]

        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._handler = logging.FileHandler(path, encoding="utf-8")
        # one that no other code can find, so that nothing of the process is changed
        logger = logging.Logger("trainer_hooks.mlperf", logging.INFO)  # noqa: LOG001
        logger.addHandler(self._handler)
        self._mllog = MLLogger(logger)

    @classmethod
    def begun(cls, path: Path, run_id: str, began_ms: int, told: Mapping[str, Any]) -> ResultFile:
        """Return the file of a run that starts now.

        Args:
            path: where.
            run_id: which run it is.
            began_ms: since when it was made ready.
            told: what is written of it, by the keys.
        """
        file = cls(path)
        file.start("init_start", began_ms)
        for key, value in {_RUN_ID: run_id, **told}.items():
            file.event(key, value)
        file.end("init_stop")
        file.start("run_start")
        return file

    @classmethod
    def reopened(cls, path: Path, run_id: str, size: int) -> ResultFile:
        """Return the file of a run that goes on, less what was written after it was saved.

        Raises:
            CheckpointError: it is not there, or not of that run.
        """
        try:
            with path.open("rb+") as file:
                if f'"{run_id}"'.encode() not in file.read(size) or file.tell() != size:
                    raise CheckpointError(_not_ours(path, "it is another run's"))
                file.truncate(size)
        except FileNotFoundError as error:
            raise CheckpointError(_not_ours(path, "it is not there")) from error
        return cls(path)

    @property
    def size(self) -> int:
        """How many bytes are in it."""
        return self._path.stat().st_size

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Write something that happens at a moment."""
        self._mllog.event(key, value, metadata)

    def start(self, key: str, time_ms: int | None = None, **metadata: Any) -> None:
        """Write that something begins, now or at another time."""
        self._mllog.start(key, None, metadata, time_ms=time_ms)

    def end(self, key: str, **metadata: Any) -> None:
        """Write that something is over."""
        self._mllog.end(key, None, metadata)

    def close(self) -> None:
        """Close it."""
        self._handler.close()


def _not_ours(path: Path, why: str) -> str:
    return (
        f"result file {str(path)!r} of MLPerfCallback cannot be gone on with: {why}. Put the file "
        "that the run began back, or begin a run of its own with another index."
    )
