"""FolderLogger: what loggers that write to a folder of each run share."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trainer_hooks.loggers.run_folder import RunFolder

__all__ = ["FolderLogger", "give_back_folders", "open_folders", "tell_apart"]


class FolderLogger(Logger):
    """A logger with a folder `save_dir/name/version_N` for each run."""

    run_folder: RunFolder

    @property
    def version(self) -> int | str:
        """Return the number of this run, or the name that was given; nothing is created."""
        return self.run_folder.version

    @property
    def save_dir(self) -> str:
        """Return the folder for all experiments."""
        return self.run_folder.save_dir

    @property
    def log_dir(self) -> str:
        """Return the folder of this run; nothing is created."""
        return str(self.run_folder.path)


def tell_apart(loggers: Iterable[Logger]) -> None:
    """Give each logger of one class a folder of its own, and those of several classes a common one.

    Raises:
        OptionError: two of one class were given the same folder, or a logger is there twice.
    """
    listed = list(loggers)
    if len({id(logger) for logger in listed}) < len(listed):
        raise OptionError(
            f"Trainer(logger={listed!r}): a logger stands there twice. Leave one of them out."
        )
    ours = [logger for logger in listed if isinstance(logger, FolderLogger)]
    taken: set[tuple[type, str]] = set()
    for logger in ours:
        root = logger.run_folder.root.absolute()
        alike = [
            one
            for one in ours
            if type(one) is type(logger) and one.run_folder.root.absolute() == root
        ]
        if len(alike) < 2:
            continue  # who is asked for its folder has promised it
        while (place := (type(logger), logger.log_dir)) in taken:
            if logger.run_folder.is_fixed:
                raise OptionError(
                    f"Trainer(logger=...) has two {type(logger).__qualname__}s that write to "
                    f"{logger.log_dir!r}. Give one of them another name= or version=."
                )
            logger.run_folder.pass_over()
        taken.add(place)


def open_folders(loggers: Iterable[Logger]) -> None:
    """Make the folders of a run, before anybody asks for them.

    Loggers of several classes that are free to choose share one: the first of each class with the
    first of the others, and so on.

    Raises:
        OptionError: a folder cannot be made.
    """
    opened: dict[tuple[Path, int], RunFolder] = {}
    count: Counter[tuple[Path, type]] = Counter()
    for logger in loggers:
        if not isinstance(logger, FolderLogger):
            continue
        folder = logger.run_folder
        if folder.is_fixed:
            folder.open()
            continue
        root = folder.root.absolute()
        place = (root, count[root, type(logger)])
        count[root, type(logger)] += 1
        folder.open(opened.get(place))
        opened.setdefault(place, folder)


def give_back_folders(loggers: Iterable[Logger]) -> None:
    """Remove the folders in which nothing was written since they were made."""
    folders = [logger.run_folder for logger in loggers if isinstance(logger, FolderLogger)]
    marks = {folder.mark for folder in folders}
    emptied = {path for folder in folders for path in folder.give_back(marks)}
    for path in sorted(emptied, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):  # it holds something
            path.rmdir()
