"""Folders: where a run writes: taken for it alone, tried and told of before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks.checkpoint import is_inside, is_remote, require_local, try_to_write
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.folder_logger import FolderLogger, give_back_folders, open_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.callbacks import RunManifest
    from trainer_hooks.context import Trainer
    from trainer_hooks.trainer.run.session import Session

__all__ = ["give_back", "look_at", "take"]


def take(session: Session) -> None:
    """Make the folder of a fit, which no other run is given, before anybody asks for it.

    Raises:
        OptionError: it cannot be made.
    """
    if session.state.fn == "fit":
        open_folders(session.loggers)


def give_back(session: Session) -> None:
    """Remove the folder of a run that wrote nothing."""
    give_back_folders(session.loggers)


def look_at(session: Session, trainer: Trainer) -> None:
    """Try to write wherever a fit is going to, and say what of it is not in the run's folder.

    Raises:
        OptionError: it cannot write there.
        CheckpointError: it is to save in parts elsewhere than on this machine.
    """
    if session.state.fn != "fit" or trainer.fast_dev_run:
        return
    if session.processes.saves_parts:  # found by all, as none is to wait for another
        for saver in trainer.checkpoint_callbacks:
            for folder in saver.folders():
                require_local(folder)
    if not trainer.is_global_zero:
        return
    own = next((one.log_dir for one in session.loggers if isinstance(one, FolderLogger)), None)
    elsewhere: dict[str, None] = {}
    for folder, what in _places(session, trainer):
        if is_remote(folder):
            elsewhere[f"{what}: {folder!r}"] = None
            continue
        try:
            try_to_write(Path(folder))
        except OSError as error:
            place = "" if error.filename is None else f": {error.filename}"
            raise OptionError(
                f"{what}, {folder!r}: nothing can be written there ({error.strerror}{place}). It "
                "must be a folder that is there, or can be made, and takes files. Give another "
                "path, or change its rights."
            ) from error
        if own is not None and not is_inside(str(Path(folder, "file")), own):
            elsewhere[f"{what}: {folder!r}"] = None
    if own is not None and elsewhere:
        trainer.print(f"run folder: {own!r}; elsewhere: {', '.join(elsewhere)}")


def _places(session: Session, trainer: Trainer) -> Iterator[tuple[str, str]]:
    """Give the folders that a fit writes to, each with what writes there."""
    for logger in session.loggers:
        folder = logger.log_dir if isinstance(logger, FolderLogger) else logger.save_dir
        if folder is not None:
            yield folder, f"logs of {type(logger).__name__}"
    for saver in trainer.checkpoint_callbacks:
        for folder in saver.folders():
            yield folder, f"checkpoints of {type(saver).__name__}"
    manifest = class_if_loaded("trainer_hooks.callbacks.reporting.run_manifest", "RunManifest")
    for callback in session.connector.callbacks:
        if isinstance(callback, manifest):
            folder = cast("RunManifest", callback).dirpath
            if folder is not None:
                yield folder, f"journal of {type(callback).__name__}"
