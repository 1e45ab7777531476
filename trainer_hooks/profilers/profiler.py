"""Profiler: what all profilers have in common."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

__all__ = ["Profiler"]


class Profiler(ABC):
    """Measure the actions of a run, and tell of them when it is over. Subclass it for one of yours.

    A run calls `start` and `stop` with the name of each action, one inside another, and `describe`
    at its end. `trainer.profiler` is the run's, so a module measures parts of its own by
    `with self.trainer.profiler.profile("name")`.

    Args:
        dirpath: the folder for its files; the log folder unless given.
        filename: what the file with the summary is called, which gets the run in front and `.txt`
            behind: `fit-NAME.txt`. Without one the summary is logged.

    Raises:
        OptionError: an argument is no path or no name.
    """

    def __init__(
        self, dirpath: str | os.PathLike[str] | None = None, filename: str | None = None
    ) -> None:
        where = type(self).__qualname__
        if dirpath is not None and not isinstance(dirpath, str | os.PathLike):
            raise OptionError(f"dirpath {dirpath!r} of {where}: it must be a folder. Pass a path.")
        is_name = isinstance(filename, str) and filename and Path(filename).name == filename
        if filename is not None and not is_name:
            raise OptionError(
                f"filename {filename!r} of {where}: it must be a file's name without a folder. "
                "Pass the folder as dirpath."
            )
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
        """End what `start` has begun."""

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Measure what is done inside, also where that fails."""
        self.start(action_name)
        try:
            yield action_name
        finally:
            self.stop(action_name)

    def summary(self) -> str:
        """Return what was found, as text for people; an empty one if there is nothing to tell."""
        return ""

    def describe(self) -> None:
        """Write the summary to its file, or log it."""
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
        """Get ready for a run.

        Args:
            stage: `"fit"`, `"validate"`, `"test"` or `"predict"`.
            local_rank: this process's number on its machine.
            log_dir: where files go without a `dirpath`.
        """
        self._stage, self._rank = stage, local_rank or 0
        self._log_dir = None if log_dir is None else Path(log_dir)

    def teardown(self, stage: str | None) -> None:  # noqa: B027 - optional
        """Be done with a run, however it ended."""

    def attach_module(self, module: nn.Module | None) -> None:  # noqa: B027 - optional
        """Learn whose run it is; None once it is over."""

    @property
    def local_rank(self) -> int:
        """This process's number on its machine."""
        return self._rank

    def _path(self, name: str) -> Path:
        """Return where a file goes; its folder is made."""
        folder = self.dirpath or self._log_dir or Path.cwd()
        folder.mkdir(parents=True, exist_ok=True)
        stem, dot, suffix = name.partition(".")
        parts = (self._stage, stem, str(self._rank or ""))
        return folder.absolute() / f"{'-'.join(part for part in parts if part)}{dot}{suffix}"
