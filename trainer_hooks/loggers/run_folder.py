"""RunFolder: the folder of one run, `save_dir/name/version_N`, that no other logger is given."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RunFolder", "check_text"]

_VERSION = re.compile(r"version_(\d+)")


class RunFolder:
    """The folder of one run; it is made at the first write.

    Args:
        owner: the class of the logger, for messages.
        save_dir: folder for all experiments.
        name: name of the experiment; empty or None leaves that level out.
        version: a number, or the whole name of the folder; None for the next free number.
        create: makes the file by which the folder is a logger's own; returns False if it is there.

    Raises:
        OptionError: an argument breaks its rule.
    """

    def __init__(
        self,
        owner: str,
        save_dir: str | os.PathLike[str],
        name: str | None,
        version: int | str | None,
        create: Callable[[Path], bool],
    ) -> None:
        _check(owner, save_dir, version)
        self.save_dir = os.fspath(save_dir)
        self._owner = owner
        self._root = Path(self.save_dir, name or "")
        self._create = create
        self._version = version
        self._is_chosen = version is not None
        self._is_resumed = False
        self._path: Path | None = None
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
        """Return the folder, made and taken for this logger alone at the first call.

        Raises:
            OptionError: it cannot be made.
        """
        if self._path is None:
            is_known = self._is_chosen or self._is_resumed
            try:
                self._path = self._take_known() if is_known else self._take_next()
            except OSError as error:
                raise OptionError(
                    f"save_dir {self.save_dir!r} of {self._owner}: {self.path} cannot be made "
                    f"({error.strerror or error}). Give a folder that can be written to."
                ) from error
        return self._path

    def state(self) -> dict[str, Any]:
        """Return what `resume` finds the folder by, once it is this logger's own."""
        self.claim()
        return {"root": str(self._root.resolve()), "version": self.version}

    def resume(self, state: dict[str, Any]) -> bool:
        """Take the folder of a checkpoint; return False if the user chose another one."""
        if state.get("root") != str(self._root.resolve()):
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
        return self._root / (version if isinstance(version, str) else f"version_{version}")

    def _next(self) -> int:
        """Return the number after the highest `version_N`."""
        # tempfile has names that nobody has, but none that people can count
        root = self._root
        names = [entry.name for entry in root.iterdir()] if root.is_dir() else []
        found = [int(match[1]) for match in map(_VERSION.fullmatch, names) if match]
        return max(found, default=-1) + 1

    def _take_known(self) -> Path:
        folder = self.path
        folder.mkdir(parents=True, exist_ok=True)
        self.is_continued = not self._create(folder)
        return folder

    def _take_next(self) -> Path:
        """Take the number that was told to somebody, else the next one that nobody has.

        A folder that was told may exist already, because somebody saved a checkpoint there; so what
        makes it ours is to be the one that creates the file in it.
        """
        promised = self._version
        number = self._next() if promised is None else int(promised)
        while True:
            folder = self._of(number)
            try:
                folder.mkdir(parents=True, exist_ok=number == promised)
                if self._create(folder):
                    break
            except FileExistsError:
                pass  # somebody was faster
            number += 1
        self._version = number
        if promised not in {None, number}:
            warn(
                f"{self._owner} said that it would write to {self._of(int(promised or 0))}, "
                f"which another logger took meanwhile: it writes to {folder}. Give each run its "
                "own name= or version= to know the folder beforehand.",
                TrainerHooksWarning,
            )
        return folder


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
