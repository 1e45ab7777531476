"""RunFolder: the folder of one run, `save_dir/name/version_N`, that no other logger is given."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["RunFolder", "check_text"]

_VERSION = re.compile(r"version_(\d+)")


class RunFolder:
    """The folder of one run; it is made as a fit begins, or else at the first write.

    Args:
        owner: the class of the logger, for messages.
        save_dir: folder for all experiments.
        name: name of the experiment; empty or None leaves that level out.
        version: a number, or the whole name of the folder; None for the next free number.
        mark: the name of the file by which the folder is a logger's own.
        create: makes that file at a path; returns False if it is there.

    Attributes:
        save_dir: as given.
        root: the folder of the experiment's runs.
        mark: as given.
        is_continued: whether the folder was a logger's own before.

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
        create: Callable[[Path], bool],
    ) -> None:
        _check(owner, save_dir, version)
        self.save_dir = os.path.expanduser(save_dir)  # noqa: PTH111 - not `./~`
        self.root = Path(self.save_dir, name or "")
        self.mark = mark
        self._owner = owner
        self._create = create
        self._version = version
        self._is_chosen = version is not None
        self._is_resumed = False
        self._path: Path | None = None
        self._made: list[Path] = []
        self._is_used = False
        self.is_continued = False

    @property
    def version(self) -> int | str:
        """Return the number of this run, or the name that was given; nothing is created."""
        if self._version is None:
            self._version = self._next()
        return self._version

    @property
    def path(self) -> Path:
        """Return the folder; nothing is created."""
        return self._of(self.version)

    @property
    def is_chosen(self) -> bool:
        """Return whether the user chose the version."""
        return self._is_chosen

    @property
    def is_fixed(self) -> bool:
        """Return whether the version cannot be another any more."""
        return self._is_chosen or self._path is not None

    def pass_over(self) -> None:
        """Take the number after the present one."""
        self._version = int(self.version) + 1

    def claim(self) -> Path:
        """Return the folder to write to, made and taken for this logger alone at the first call.

        Raises:
            OptionError: it cannot be made.
        """
        self._is_used = True
        return self.open()

    def open(self, shared: RunFolder | None = None) -> Path:
        """Make the folder and take it for this logger alone, before there is anything to write.

        Args:
            shared: that of another logger of the same run, open, to be in the same folder.

        Raises:
            OptionError: it cannot be made.
        """
        if self._path is None:
            is_known = self._is_chosen or self._is_resumed
            try:
                if shared is not None and not is_known:
                    self._path = self._take_shared(shared)
                else:
                    self._path = self._take_known() if is_known else self._take_next()
            except OSError as error:
                where = self.root if self._version is None else self.path
                raise OptionError(
                    f"save_dir {self.save_dir!r} of {self._owner}: {where} cannot be made "
                    f"({error.strerror or error}). Give a folder that can be written to."
                ) from error
        return self._path

    def give_back(self, marks: Collection[str]) -> list[Path]:
        """Let go of the folder if it was new as it was opened, and nothing was put there since.

        Args:
            marks: the names of files by which loggers of this run took a folder.

        Returns:
            What may be removed if it is empty: the folder, and those above it that were made.
        """
        folder = self._path
        if folder is None or self._is_used or self.is_continued:
            return []
        with suppress(OSError):  # somebody removed it
            if {path.name for path in folder.iterdir()} <= set(marks):
                (folder / self.mark).unlink(missing_ok=True)
                made, self._path, self._made = self._made, None, []
                return [folder, *made]
        return []

    def state(self) -> dict[str, Any]:
        """Return what `resume` finds the folder by, once it is this logger's own."""
        self.claim()
        return {"root": str(self.root.resolve()), "version": self.version}

    def resume(self, state: dict[str, Any]) -> bool:
        """Take the folder of a checkpoint; return False if the user chose another one."""
        if state.get("root") != str(self.root.resolve()):
            return False
        if self._is_chosen and state["version"] != self._version:
            return False
        self._version, self._path = state["version"], None
        self._is_resumed = True
        return True

    def leave(self) -> None:
        """Take the next free number instead: the folder that was resumed is another run's."""
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
        # tempfile has names that nobody has, but none that people can count
        root = self.root
        names = [entry.name for entry in root.iterdir()] if root.is_dir() else []
        found = [int(match[1]) for match in map(_VERSION.fullmatch, names) if match]
        return max(found, default=-1) + 1

    def _take_known(self) -> Path:
        folder = self.path
        self._make_root()
        folder.mkdir(parents=True, exist_ok=True)
        self.is_continued = not self._create(folder / self.mark)
        return folder

    def _take_next(self) -> Path:
        """Take the number that was told to somebody, else the next one that nobody has.

        A folder that was told may exist already, because somebody put something there; so what
        makes it ours is to be the one that creates the file in it.
        """
        promised = self._version
        self._make_root()
        number = self._next() if promised is None else int(promised)
        while True:
            folder = self._of(number)
            try:
                folder.mkdir(exist_ok=number == promised)
                if self._create(folder / self.mark):
                    break
            except FileExistsError:
                pass  # somebody was faster
            except FileNotFoundError:  # a run that wrote nothing took the root away with it
                self._make_root()
                continue
            number += 1
        self._version, self.is_continued = number, False
        self._tell_another(promised)
        return folder

    def _take_shared(self, shared: RunFolder) -> Path:
        """Take the folder that another logger of the same run took."""
        promised, self._version = self._version, shared.version
        folder = self._take_known()
        self._tell_another(promised)
        return folder

    def _tell_another(self, promised: int | str | None) -> None:
        """Warn if it is another folder than somebody was told."""
        if promised not in {None, self._version}:
            warn(
                f"{self._owner} said that it would write to {self._of(promised or 0)}, which "
                f"another logger took meanwhile: it writes to {self.path}. Give each run its own "
                "name= or version= to know the folder beforehand.",
                TrainerHooksWarning,
            )

    def _make_root(self) -> None:
        missing = [path for path in (self.root, *self.root.parents) if not path.exists()]
        self._made += missing
        self.root.mkdir(parents=True, exist_ok=True)


def check_text(name: str, value: object, owner: str) -> None:
    """Make sure that an argument is a string.

    Raises:
        OptionError: it is not.
    """
    if not isinstance(value, str):
        raise OptionError(
            f'{name} {value!r} of {owner}: must be a string. Write {name}="" to leave it out.'
        )


def _check(owner: str, save_dir: object, version: object) -> None:
    if not isinstance(save_dir, str | os.PathLike):
        raise OptionError(f"save_dir {save_dir!r} of {owner}: must be a path. Give a folder.")
    if Path(save_dir).exists() and not Path(save_dir).is_dir():
        raise OptionError(
            f"save_dir {os.fspath(save_dir)!r} of {owner}: is a file, and must be a folder. "
            "Give another path."
        )
    is_number = isinstance(version, int) and not isinstance(version, bool) and version >= 0
    is_text = isinstance(version, str) and version != ""
    if not (version is None or is_number or is_text):
        raise OptionError(
            f"version {version!r} of {owner}: must be a number from 0 on, or a folder's name. "
            "Leave it out to take the next free number."
        )
