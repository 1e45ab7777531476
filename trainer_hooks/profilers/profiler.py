"""Profiler: the base class of all profilers, and the one that measures nothing."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks._options import Rule, check_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

__all__ = ["PassThroughProfiler", "Profiler"]

_RULES = {
    "dirpath": Rule(
        "a folder",
        lambda value: value is None or isinstance(value, str | os.PathLike),
        "Pass a path.",
    ),
    "filename": Rule(
        "a file's name without a folder",
        lambda value: (
            value is None or (isinstance(value, str) and value != "" and Path(value).name == value)
        ),
        "Pass the folder as dirpath.",
    ),
}


class Profiler(ABC):
    """Base class of a profiler: measures the actions of a run and reports them at its end.

    A run calls `start` and `stop` with the name of each action, one nested in another, and
    `describe` at its end. A module measures its own parts with `with
    self.trainer.profiler.profile("name")`.

    Args:
        dirpath: the folder for the profiler's files; the log folder by default.
        filename: the name of the summary's file. The stage is put before it and `.txt` after it:
            `fit-NAME.txt`. Without a name the summary is logged.

    Raises:
        OptionError: `dirpath` is no path, or `filename` no plain file name.
    """

    def __init__(
        self, dirpath: str | os.PathLike[str] | None = None, filename: str | None = None
    ) -> None:
        owner = type(self).__qualname__
        check_options(owner, _RULES, dirpath=dirpath, filename=filename)
        self.dirpath = None if dirpath is None else Path(dirpath)
        self.filename = filename
        self._stage = ""
        self._rank = 0
        self._log_dir: Path | None = None

    @abstractmethod
    def start(self, action_name: str) -> None:
        """Begin to measure an action."""

    @abstractmethod
    def stop(self, action_name: str) -> None:
        """End the measurement of an action that `start` began."""

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Measure the body of a `with` statement as an action, also if it raises."""
        self.start(action_name)
        try:
            yield action_name
        finally:
            self.stop(action_name)

    def summary(self) -> str:
        """Return the measurements as text for people, or an empty string if there are none."""
        return ""

    def describe(self) -> None:
        """Write the summary to its file, or log it if there is no file name."""
        text = self.summary()
        if not text:
            return
        if self.filename is None:
            if self._rank == 0:
                log.info("%s", text)
            return
        path = self._path(f"{self.filename}.txt")
        replace_file(path, lambda file: file.write(text))
        log.info("%s: wrote %s", type(self).__qualname__, path)

    def setup(
        self,
        stage: str,
        local_rank: int | None = None,
        log_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepare for a run.

        Args:
            stage: `"fit"`, `"validate"`, `"test"` or `"predict"`.
            local_rank: this process's rank on its machine.
            log_dir: the folder for files if there is no `dirpath`.
        """
        self._stage, self._rank = stage, local_rank or 0
        self._log_dir = None if log_dir is None else Path(log_dir)

    def teardown(self, stage: str | None) -> None:  # noqa: B027 - optional
        """Release everything that `setup` took, however the run ended."""

    def attach_module(self, module: nn.Module | None) -> None:  # noqa: B027 - optional
        """Receive the module of the run, or None when the run is over."""

    @property
    def local_rank(self) -> int:
        """This process's rank on its machine."""
        return self._rank

    def _path(self, name: str) -> Path:
        """Return the path of an output file, named after stage and rank, and make its folder."""
        folder = self.dirpath or self._log_dir or Path.cwd()
        folder.mkdir(parents=True, exist_ok=True)
        stem, dot, suffix = name.partition(".")
        parts = (self._stage, stem, str(self._rank or ""))
        return folder.absolute() / f"{'-'.join(part for part in parts if part)}{dot}{suffix}"


class PassThroughProfiler(Profiler):
    """A profiler that measures nothing: `trainer.profiler` where none was given.

    With it a module may always write `with self.trainer.profiler.profile("name")`.
    """

    def start(self, action_name: str) -> None:
        """Do nothing."""

    def stop(self, action_name: str) -> None:
        """Do nothing."""
