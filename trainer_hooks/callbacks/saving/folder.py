"""Folder: where a saver's checkpoints lie, and what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.callbacks.saving.saved_files import (
    default_folder,
    earlier_folders,
    has_own_folder,
)
from trainer_hooks.checkpoint import files_in

if TYPE_CHECKING:
    from trainer_hooks.callbacks.saving.saver import Saver
    from trainer_hooks.context import Trainer

__all__ = ["Folder"]


class Folder:
    """Find the folder of a saver in each run, and the checkpoints in it.

    Args:
        saver: whose folder it is: the one that it has now was given, or None.

    Attributes:
        is_given: whether it was given.
    """

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self.is_given = saver.dirpath is not None

    def resolve(self, trainer: Trainer) -> None:
        """Take the default folder of a run, if none was given."""
        if not self.is_given:
            self._saver.dirpath = default_folder(trainer)

    def files(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in it; in a default one that is new, those of earlier runs."""
        saver = self._saver
        # a filename may lead into folders below
        depth = (saver.filename or "").count("/")
        if self.is_given and saver.dirpath is not None:
            return files_in(saver.dirpath, saver.FILE_EXTENSION, depth)
        if has_own_folder(trainer):
            found = files_in(default_folder(trainer), saver.FILE_EXTENSION, depth)
            if found:
                return found
        earlier = earlier_folders(trainer)
        return [path for item in earlier for path in files_in(item, saver.FILE_EXTENSION, depth)]
