"""RunFolder: the folder of one run, `save_dir/name/version_N`, claimed by one logger."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks._options import FOLDER, Rule, check_options, is_int
from trainer_hooks._system import length_fault, path_fault, without_file_scheme
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.loggers.adapter import LoggerAdapter
from trainer_hooks.loggers.base import Logger
from trainer_hooks.loggers.dummy import RankZeroLoggerProxy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_VERSION = re.compile(r"version_(\d+)")

_RULES = {
    "save_dir": FOLDER,
    "version": Rule(
        "a number from 0 on, or a folder's name",
        lambda value: value is None or is_int(value, 0) or (isinstance(value, str) and value != ""),
        "Leave it out to take the next free number.",
    ),
}


class RunFolder:
    """The folder of one run; it is made when a fit begins, or else at the first write.

    Args:
        owner: the class of the logger, for messages.
        save_dir: folder for all experiments.
        name: name of the experiment; empty or None leaves that level out.
        version: a number, or the whole name of the folder; None for the next free number.
        mark: the name of a file in the folder whose creation claims the folder for a logger.
        content: the text that this file has at first.

    Attributes:
        save_dir: the folder for all experiments.
        root: the folder of the experiment's runs.
        mark: the name of the file that claims a folder.
        is_chosen: whether the user chose the version.
        is_continued: whether the folder belonged to a logger of this class before.

    Raises:
        OptionError: an argument breaks its rule.
    """

    def __init__(
        self,
        owner: str,
        save_dir: str | os.PathLike[str],
        name: str | None,
        version: int | str | None,
        mark: str,
        content: str = "",
    ) -> None:
        check_options(owner, _RULES, save_dir=save_dir, version=version)
        save_dir = without_file_scheme(os.fspath(save_dir))
        # taken for a path it would be a local folder of that name
        if "://" in save_dir:
            store = save_dir.partition("://")[0]
            raise OptionError(
                f"save_dir {save_dir!r} of {owner}: is an address, and must be a path: the logger "
                "appends to its files, and cuts them on a resume, which such stores cannot do. "
                "Give a local folder, and copy it when the run is over: "
                f"fsspec.filesystem({store!r}).put(trainer.log_dir, {save_dir!r}, recursive=True). "
                f"Checkpoints can go there at once: ModelCheckpoint(dirpath={save_dir!r})."
            )
        for option, value in (("save_dir", save_dir), ("name", name), ("version", version)):
            fault = path_fault(value) if isinstance(value, str) else ""
            if fault:
                raise OptionError(f"{option} {value!r} of {owner}: {fault}. Give another.")
        if Path(save_dir).exists() and not Path(save_dir).is_dir():
            raise OptionError(
                f"save_dir {save_dir!r} of {owner}: is a file, and must be a folder. "
                "Give another path."
            )
        self.save_dir = os.path.expanduser(save_dir)  # noqa: PTH111 - not `./~`
        self.root = Path(self.save_dir, name or "")
        self.mark = mark
        self._owner = owner
        self._content = content
        self._version = version
        self.is_chosen = version is not None
        self._is_resumed = False
        self._path: Path | None = None
        self._made_folders: list[Path] = []
        self._is_used = False
        self.is_continued = False

    @property
    def version(self) -> int | str:
        """Return the number of this run, or the chosen name; nothing is created."""
        if self._version is None:
            # kept, so that all who ask before the run are told the same number
            self._version = self._next()
        return self._version

    @property
    def path(self) -> Path:
        """Return the path of the folder; nothing is created."""
        return self._path or self._of(self.version)

    @property
    def is_fixed(self) -> bool:
        """Return whether the version can no longer change."""
        return self.is_chosen or self._path is not None

    def skip_number(self) -> None:
        """Use the number after the present one."""
        self._version = int(self.version) + 1

    def claim(self) -> Path:
        """Return the folder to write to; the first call makes it and claims it for this logger.

        Raises:
            OptionError: it cannot be made.
        """
        self._is_used = True
        return self.open()

    def open(self, shared: RunFolder | None = None) -> Path:
        """Make the folder and claim it for this logger, before there is anything to write.

        Args:
            shared: the open folder of another logger of the same run, to use as well.

        Raises:
            OptionError: it cannot be made.
        """
        if self._path is None:
            announced, is_known = self._version, self.is_chosen or self._is_resumed
            try:
                if shared is not None and not is_known:
                    self._version, is_known = shared.version, True
                self._path = self._claim_known() if is_known else self._claim_next()
            except OSError as error:
                where = self.root if self._version is None else self.path
                reason = length_fault(where) or error.strerror or error
                raise OptionError(
                    f"save_dir {self.save_dir!r} of {self._owner}: {where} cannot be made "
                    f"({reason}). Give a folder that can be written to."
                ) from error
            if announced not in {None, self._version}:
                warn(
                    f"{self._owner} said that it would write to {self._of(announced or 0)}, which "
                    f"another logger took meanwhile: it writes to {self.path}. Give each run its "
                    "own name= or version= to know the folder beforehand.",
                    TrainerHooksWarning,
                )
        return self._path

    def release_if_unused(self, marks: Collection[str]) -> list[Path]:
        """Release the folder if it was new when it was opened and nothing was put into it since.

        Args:
            marks: the names of files by which loggers of this run claimed a folder.

        Returns:
            The folders to remove if they are empty: this one, and the parents that were made for
                it.
        """
        folder = self._path
        if folder is None or self._is_used or self.is_continued:
            return []
        with suppress(OSError):  # the folder is gone already
            # a file of anybody else, such as a checkpoint, keeps the folder
            if {path.name for path in folder.iterdir()} <= set(marks):
                (folder / self.mark).unlink(missing_ok=True)
                parents, self._path, self._made_folders = self._made_folders, None, []
                return [folder, *parents]
        return []

    def state(self) -> dict[str, Any]:
        """Claim the folder, and return the data by which `resume` finds it again."""
        # the checkpoint names the folder, so that it must stay even if it is empty
        self._is_used = True
        self.open()
        # resolved: the resumed run may have another working directory
        return {"root": str(self.root.resolve()), "version": self.version}

    def owns(self, state: dict[str, Any]) -> bool:
        """Return whether the folder of a checkpoint is this one, or one that the user may mean."""
        is_here = state.get("root") == str(self.root.resolve())
        return is_here and (not self.is_chosen or state["version"] == self._version)

    def resume(self, state: dict[str, Any]) -> None:
        """Use the folder of a checkpoint."""
        self._version, self._path = state["version"], None
        self._is_resumed = True

    def start_new(self) -> None:
        """Use the next free number instead: the resumed folder does not match the checkpoint."""
        folder = self.path
        self._is_resumed, self._version, self._path = False, None, None
        warn(
            f"{self._owner}: {folder} does not hold what it did as the checkpoint was saved. It is "
            "left as it is, and this run goes on in a new folder.",
            TrainerHooksWarning,
        )

    def _of(self, version: int | str) -> Path:
        return self.root / (version if isinstance(version, str) else f"version_{version}")

    def _next(self) -> int:
        """Return the number after the highest `version_N`."""
        # not tempfile's random names: people count and compare runs
        root = self.root
        names = [entry.name for entry in root.iterdir()] if root.is_dir() else []
        numbers = [int(match[1]) for match in map(_VERSION.fullmatch, names) if match]
        return max(numbers, default=-1) + 1

    def _claim_known(self) -> Path:
        folder = self.path
        self._make_root()
        folder.mkdir(parents=True, exist_ok=True)
        self.is_continued = not self._claims(folder)
        return folder

    def _claim_next(self) -> Path:
        """Claim the number that was announced before, else the next free one.

        The folder of an announced number may exist already, because a callback put a file there. So
        the creation of the marker file decides whose folder it is, not the creation of the folder.
        """
        announced = self._version
        self._make_root()
        number = self._next() if announced is None else int(announced)
        while True:
            folder = self._of(number)
            try:
                # only an announced folder may exist: callbacks know its path and may have used it
                folder.mkdir(exist_ok=number == announced)
                if self._claims(folder):
                    break
            except FileExistsError:
                pass  # another logger or process claimed the number first
            except FileNotFoundError:  # a run that wrote nothing has removed the root
                self._make_root()
                continue
            number += 1
        self._version, self.is_continued = number, False
        return folder

    def _claims(self, folder: Path) -> bool:
        """Create the file that claims a folder; return False if it exists."""
        try:
            # the mode x: of several processes only one can create the file
            with (folder / self.mark).open("x", encoding="utf-8", newline="") as file:
                file.write(self._content)
        except FileExistsError:
            return False
        return True

    def _make_root(self) -> None:
        # before they are made: only folders that were missing may be removed at the end
        missing = [path for path in (self.root, *self.root.parents) if not path.exists()]
        self._made_folders += missing
        self.root.mkdir(parents=True, exist_ok=True)


class FolderLogger(Logger):
    """Base class of the loggers with a folder `save_dir/name/version_N` for each run."""

    run_folder: RunFolder

    @property
    def version(self) -> int | str:
        """Return the number of this run, or the chosen name; nothing is created."""
        return self.run_folder.version

    @property
    def save_dir(self) -> str:
        """Return the folder for all experiments."""
        return self.run_folder.save_dir

    @property
    def root_dir(self) -> str:
        """Return the folder of the experiment's runs."""
        return str(self.run_folder.root)

    @property
    def log_dir(self) -> str:
        """Return the folder of this run; nothing is created."""
        return str(self.run_folder.path)

    def owns_run(self, state: dict[str, Any]) -> bool:
        """Return whether the folder of a checkpoint is this logger's."""
        return self.run_folder.owns(state)

    def set_earlier_run_aside(self) -> None:
        """Rename the files of an earlier run in this run's folder, at the next write.

        It is called as a new training begins in a folder that was there, before anything is logged.
        """


def run_dir(logger: Logger, default_root_dir: str) -> str:
    """Return the folder that holds the checkpoints of a logger's run; nothing is created.

    A logger without a `log_dir` of its own has `save_dir/name/version`, as in Lightning, or
    `save_dir` if it has no version to tell its runs apart.

    Args:
        logger: the logger.
        default_root_dir: the trainer's, for a logger without a folder.
    """
    if isinstance(logger, FolderLogger):
        # not log_dir: with sub_dir=, TensorBoard's is a folder in that of the run
        return str(logger.run_folder.path)
    if isinstance(logger, RankZeroLoggerProxy):
        return logger.run_dir
    if isinstance(logger, LoggerAdapter):
        has_own = logger.has_log_dir_alone
    else:
        has_own = type(logger).log_dir is not Logger.log_dir
    if has_own:
        return logger.log_dir or default_root_dir
    root, version = logger.save_dir or default_root_dir, logger.version
    if version is None or version == "":
        return root
    folder = version if isinstance(version, str) else f"version_{version}"
    return os.path.join(root, logger.name or "", folder)  # noqa: PTH118 - it may be an address


def assign_folders(loggers: Iterable[Logger]) -> None:
    """Give each logger of one class its own folder, and those of different classes a common one.

    Raises:
        OptionError: two of one class were given the same folder, or one logger is listed twice.
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
            other
            for other in ours
            if type(other) is type(logger) and other.run_folder.root.absolute() == root
        ]
        if len(alike) < 2:
            continue  # asking for `log_dir` would fix its number before the run
        while (folder := (type(logger), logger.log_dir)) in taken:
            if logger.run_folder.is_fixed:
                raise OptionError(
                    f"Trainer(logger=...) has two {type(logger).__qualname__}s that write to "
                    f"{logger.log_dir!r}. Give one of them another name= or version=."
                )
            logger.run_folder.skip_number()
        taken.add(folder)


def open_folders(loggers: Iterable[Logger], *, begins_anew: bool = False) -> None:
    """Make the folders of a run before a callback asks for them.

    Loggers of different classes that are free to choose share a folder: the first of each class
    with the first of the others, and so on.

    Args:
        loggers: the run's loggers.
        begins_anew: whether a new training begins, so that what an earlier run logged in a folder
            with a chosen version is set aside.

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
            if begins_anew and folder.is_continued:
                logger.set_earlier_run_aside()
            continue
        root = folder.root.absolute()
        key = (root, count[root, type(logger)])
        count[root, type(logger)] += 1
        folder.open(opened.get(key))
        opened.setdefault(key, folder)


def remove_unused_folders(loggers: Iterable[Logger]) -> None:
    """Remove the folders in which nothing was written since they were made."""
    folders = [logger.run_folder for logger in loggers if isinstance(logger, FolderLogger)]
    marks = {folder.mark for folder in folders}
    emptied = {path for folder in folders for path in folder.release_if_unused(marks)}
    # the deepest first: a folder can be removed only when it is empty
    for path in sorted(emptied, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):  # the folder is not empty
            path.rmdir()
