"""Files of a saver on disk: what a save writes, which names are free, what may be removed."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._files import hidden_beside
from trainer_hooks._log import warn
from trainer_hooks.checkpoint import is_inside, is_remote, joined, located, remove
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.loggers.folder_logger import FolderLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from trainer_hooks.callbacks.saving.claims import Claims
    from trainer_hooks.context import Trainer

__all__ = [
    "Plan",
    "default_folder",
    "earlier_folders",
    "free_path",
    "has_own_folder",
    "is_removable",
    "link_to",
    "remove_or_warn",
    "resolved_folder",
]

_DEFAULT_NAME = "checkpoints"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one save does.

    Attributes:
        files: the paths to write, in this order.
        obsolete: paths to remove once the last of `files` is durable.
        link: a path that then becomes a link to the first of `files`.
        is_for_now: whether the next save replaces the file; it stands among `obsolete` then.
    """

    files: tuple[str, ...]
    obsolete: tuple[str, ...] = ()
    link: str | None = None
    is_for_now: bool = False

    @classmethod
    def for_now(cls, path: str) -> Plan:
        """Return the plan of a file that the next save replaces."""
        return cls((path,), (path,), is_for_now=True)


def resolved_folder(path: str | os.PathLike[str]) -> str:
    """Return `path` absolute, with `~` and links resolved; an address as it is."""
    if is_remote(path):
        return located(path)
    return str(Path(located(os.path.expanduser(path))).resolve())  # noqa: PTH111 - not `./~`


def default_folder(trainer: Trainer) -> str:
    """Return where checkpoints of this run go if no folder was given; nothing is created."""
    root = trainer.log_dir if trainer.logger is not None else None
    return resolved_folder(joined(root or trainer.default_root_dir, _DEFAULT_NAME))


def earlier_folders(trainer: Trainer) -> list[str]:
    """Return where earlier runs, if they had no folder given either, left their checkpoints.

    A logger gives each run a folder of its own: those beside this run's are the earlier ones'. None
    is asked which that is: it would promise a number before it has it.
    """
    folders = [resolved_folder(joined(trainer.default_root_dir, _DEFAULT_NAME))]
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
    """Return whether the run's folder is known: to ask a logger before would be to be promised."""
    logger = trainer.logger
    return not isinstance(logger, FolderLogger) or logger.run_folder.is_fixed


def free_path(
    name: Callable[[int | None], str], first: int, reusable: Collection[str], claims: Claims
) -> str:
    """Return the first of `name(None)`, `name(first)`, `name(first + 1)`... that no file has.

    Args:
        name: gives the path for a version.
        first: the first version.
        reusable: paths that may be written over.
        claims: keep it from others until its file is there.
    """
    path, version = name(None), first
    while path not in reusable and not claims.take(path):
        path, version = name(version), version + 1
    return path


def is_removable(
    path: str, folder: str | None, resumed_from: str | os.PathLike[str] | None
) -> bool:
    """Return whether a saver may remove `path`.

    It may if the file lies in its own folder and is not the one that this run was resumed from,
    whichever way the two are written.
    """
    if folder is None or not is_inside(path, folder):
        return False
    if resumed_from is None or is_remote(path) or is_remote(resumed_from):
        return resumed_from is None or os.fspath(resumed_from) != path
    return Path(resumed_from).resolve() != Path(path).resolve()


def remove_or_warn(path: str) -> None:
    """Remove a checkpoint that is not to be kept any longer; a warning says if that fails."""
    try:
        remove(path)
    except (OSError, CheckpointError) as error:
        warn(
            f"checkpoint {path!r}: it is no longer among those to keep and cannot be removed "
            f"({error}). Remove it yourself.",
            TrainerHooksWarning,
        )


def link_to(target: str, link: str) -> None:
    """Make `link` point to `target`, at once; where links are not allowed, make it a copy."""
    if is_remote(link):
        from trainer_hooks.checkpoint import remote

        remote.copy(target, link)
        return
    path = Path(link)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = hidden_beside(path, ".new")
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(_seen_from(path.parent, target))
    except OSError:  # Windows allows links to some users only
        shutil.copy2(target, fresh)
    fresh.replace(path)


def _seen_from(folder: Path, target: str) -> Path:
    """Return `target` relative to `folder` where it is inside, so that both can be moved."""
    path = Path(target)
    return path.relative_to(folder) if path.is_relative_to(folder) else path
