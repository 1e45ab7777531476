"""Unfinished files: where a checkpoint is written before it takes its place, and what is left."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from trainer_hooks._files import hidden_beside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "SUFFIX",
    "make_folder",
    "open_part",
    "remove_stale_parts",
    "sync_folder",
    "write_whole",
]

SUFFIX = ".trainer_hooks.part"
"""How the name of an unfinished file ends; it begins with a dot."""

_SHOWN = 60
"""Bytes of a name."""


def write_whole(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file whole or not at all, making its folder; what killed processes left goes first.

    Args:
        target: the file.
        write: writes its content into an open file, and syncs it.
    """
    # atomicwrites and its like lock nothing, so a leftover could not be told from a save under way
    make_folder(target.parent)
    remove_stale_parts(target.parent)
    file, part = open_part(target)
    try:
        with file:  # closed, and so unlocked, once it has its place
            write(file)
            part.replace(target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    sync_folder(target.parent)


def open_part(target: Path) -> tuple[IO[bytes], Path]:
    """Make an unfinished file beside `target`; return it, open, and its path.

    It is locked for as long as it is open, so that others see that its process is alive: the system
    takes the lock away from a process that was killed.
    """
    while True:
        path = hidden_beside(target, f".{secrets.token_hex(4)}{SUFFIX}", _SHOWN)
        try:
            # with the mode of any new file: the umask cannot be read without changing it for
            # the whole process, and another thread may be making files
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        with suppress(OSError):  # a file system without locks, where nothing is tidied either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return os.fdopen(descriptor, "w+b"), path
        os.close(descriptor)  # another process took it for a leftover before it was locked


def remove_stale_parts(folder: Path) -> None:
    """Remove the unfinished files of processes that are gone. It never fails."""
    for path in folder.glob(f".*{SUFFIX}"):
        # locked by a live process, removed by another one, or not ours to remove
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make what was renamed in a folder, or added to it, durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
