"""The checks of ModelCheckpoint's arguments."""

from __future__ import annotations

import os
from pathlib import Path

from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.callbacks.saving.filenames import check_template
from trainer_hooks.callbacks.saving.saved_files import resolved_folder
from trainer_hooks.checkpoint.target import is_remote
from trainer_hooks.errors import OptionError

__all__ = ["check_dirpath", "check_filename", "check_flags", "check_top_k"]


def check_top_k(save_top_k: object, monitor: str | None, where: str) -> int:
    """Return `save_top_k` if it is a number that goes with `monitor`.

    Raises:
        OptionError: it is no whole number, below -1, or above 1 without a monitor to rank by.
    """
    count = check_count("save_top_k", save_top_k, where, least=-1)
    if monitor is None and count > 1:
        raise OptionError(
            f"save_top_k {count!r} of {where}: without a monitor it must be -1 (all), 0 (none) or "
            "1 (the newest). Pass monitor=..., the metric that ranks checkpoints."
        )
    return count


def check_filename(filename: object, where: str) -> str | None:
    """Return `filename` if it is None or a template of a path inside the folder.

    Raises:
        OptionError: the template cannot be filled, or leads out of the folder.
    """
    if filename is None:
        return None
    template = check_template(filename, where)
    if Path(template).is_absolute() or ".." in Path(template).parts:
        raise OptionError(
            f"filename {filename!r} of {where}: it must stay inside dirpath. Pass the folder as "
            "dirpath=... and only the name as filename=..."
        )
    return template


def check_dirpath(dirpath: object, where: str) -> str | None:
    """Return `dirpath` as an absolute path, or None.

    Raises:
        OptionError: it is no path, or the address of a store that cannot be reached from here.
    """
    if dirpath is None:
        return None
    path = os.fspath(dirpath) if isinstance(dirpath, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise OptionError(
            f"dirpath {dirpath!r} of {where}: it must be the path of a folder. Pass such a path, "
            "an address such as 's3://bucket/run', or None for the default."
        )
    if is_remote(path):
        from trainer_hooks.checkpoint.remote import obstacle

        found = obstacle(path)
        if found:
            raise OptionError(f"dirpath {dirpath!r} of {where}: {found}.")
    return resolved_folder(path)


def check_flags(where: str, **flags: object) -> None:
    """Make sure that each of `flags` is True or False.

    Raises:
        OptionError: one is not.
    """
    for name, value in flags.items():
        check_choice(name, value, where, (True, False))
