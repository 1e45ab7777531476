"""The folder of a saver: its default path, the checkpoints in it, links and deletion."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._files import hidden_beside
from trainer_hooks._log import warn
from trainer_hooks.checkpoint.paths import (
    absolute_path,
    exists,
    is_inside,
    is_remote,
    join_path,
    remove,
)
from trainer_hooks.errors import CheckpointError, OptionError, TrainerHooksWarning
from trainer_hooks.loggers.run_folder import FolderLogger

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer

__all__ = [
    "FixedSavePath",
    "default_folder",
    "earlier_folders",
    "has_own_folder",
    "is_removable",
    "link_to",
    "remove_or_warn",
    "resolved_folder",
]


_DEFAULT_NAME = "checkpoints"


def resolved_folder(path: str | os.PathLike[str]) -> str:
    """Return `path` absolute, with `~` and links resolved; an address unchanged."""
    if is_remote(path):
        return absolute_path(path)
    return str(Path(absolute_path(os.path.expanduser(path))).resolve())  # noqa: PTH111 - not `./~`


def default_folder(trainer: Trainer) -> str:
    """Return the folder for checkpoints of a run if the user passed none; nothing is created."""
    root = trainer.log_dir if trainer.logger is not None else None
    return resolved_folder(join_path(root or trainer.default_root_dir, _DEFAULT_NAME))


def earlier_folders(trainer: Trainer) -> list[str]:
    """Return the default folders of earlier runs.

    A logger gives each run a folder of its own, so those beside this run's belong to earlier runs.
    The logger is not asked for this run's folder: that would fix its version too early.
    """
    folders = [resolved_folder(join_path(trainer.default_root_dir, _DEFAULT_NAME))]
    logger = trainer.logger
    if isinstance(logger, FolderLogger):
        runs = logger.run_folder.root.resolve()
    elif logger is not None and logger.log_dir and logger.save_dir:
        runs, top = Path(logger.log_dir).resolve().parent, Path(logger.save_dir).resolve()
        if not runs.is_relative_to(top):
            return folders
    else:
        return folders
    return [*folders, *map(str, runs.glob(f"*/{_DEFAULT_NAME}"))]


def has_own_folder(trainer: Trainer) -> bool:
    """Return whether the run's folder is fixed; asking a logger earlier would fix it."""
    logger = trainer.logger
    return not isinstance(logger, FolderLogger) or logger.run_folder.is_fixed


def is_removable(
    path: str, folder: str | None, resumed_from: str | os.PathLike[str] | None
) -> bool:
    """Return whether a saver may delete `path`.

    It may if the file lies in its own folder and is not the one that this run resumed from,
    compared as resolved paths.
    """
    # a checkpoint's state may name files of another folder, as after a move
    if folder is None or not is_inside(path, folder):
        return False
    if resumed_from is None or is_remote(path) or is_remote(resumed_from):
        return resumed_from is None or os.fspath(resumed_from) != path
    return Path(resumed_from).resolve() != Path(path).resolve()


def remove_or_warn(path: str) -> None:
    """Delete a checkpoint that is no longer kept; warn if that fails."""
    try:
        remove(path)
    except (OSError, CheckpointError) as error:
        warn(
            f"checkpoint {path!r}: it is no longer among those to keep and cannot be removed "
            f"({error}). Remove it yourself.",
            TrainerHooksWarning,
        )


def link_to(target: str, link: str) -> None:
    """Make `link` point to `target` atomically; where links are not allowed, make it a copy."""
    if is_remote(link):
        from trainer_hooks.checkpoint import remote

        remote.copy(target, link)
        return
    path = Path(link)
    path.parent.mkdir(parents=True, exist_ok=True)
    # a new link that is renamed over the old one: at no moment is there none
    fresh = hidden_beside(path, ".new")
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(_seen_from(path.parent, target))
    except OSError:  # Windows lets only some users create links
        shutil.copy2(target, fresh)
    if (
        path.is_dir() and not path.is_symlink()
    ):  # a sharded folder, which replace() cannot overwrite
        remove(link)
    fresh.replace(path)


def _seen_from(folder: Path, target: str) -> Path:
    """Return `target` relative to `folder` if it is inside, so that both can be moved together."""
    path = Path(target)
    return path.relative_to(folder) if path.is_relative_to(folder) else path


class FixedSavePath:
    """The path of a saver that always overwrites one file, split into its parts.

    Args:
        save_path: the path.
        where: the class that has the argument.

    Attributes:
        folder: the folder.
        stem: the name without the suffix.
        suffix: the suffix.

    Raises:
        OptionError: it is no path of a file.
    """

    def __init__(self, save_path: str | os.PathLike[str], where: str) -> None:
        text = str(save_path) if isinstance(save_path, Path) else save_path
        if not isinstance(text, str) or not Path(text).name:
            raise OptionError(
                f"save_path {save_path!r} of {where}: it must be the path of a file. Pass one, "
                "such as 'best_model.pt'."
            )
        folder, _, name = text.rpartition("/") if is_remote(text) else ("", "", text)
        path = Path(name)
        self.folder = folder or str(path.parent)
        self.stem, self.suffix = path.stem, path.suffix

    def among(self, path: str, files: list[str], for_now: str) -> list[str]:
        """Return the file, if it exists, and the files that were saved before leaving.

        Args:
            path: the file's path.
            files: the files in the folder.
            for_now: the template of names of files saved before leaving.
        """
        begin = for_now.partition("{")[0]
        left = [one for one in files if Path(one).name.startswith(begin)]
        return [path, *left] if exists(path) else left
