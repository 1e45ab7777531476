"""Unfinished files: where a checkpoint is written before it takes its place, and what is left."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from trainer_hooks._files import hidden_beside
from trainer_hooks.checkpoint.placing import SUFFIX, is_unfinished_folder, take_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "SUFFIX",
    "NameClaim",
    "claim_name",
    "make_folder",
    "open_part",
    "remove_stale_parts",
    "sync_folder",
    "try_to_write",
    "write_whole",
]

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
            if target.is_dir():
                take_place(part, target)  # of several processes that had a part of it each
            else:
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


class NameClaim:
    """Keeps the name of a file that is to be written from others who ask for it.

    Args:
        path: a hidden file that stands for it, locked for as long as it is open.
        descriptor: that file, open; None where nothing can be locked.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Let others have the name, if the file is not there by now."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):  # at once: a forked process may have the file open as well
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def claim_name(target: Path) -> NameClaim | None:
    """Keep the name of a new file, making its folder; None if another process or run keeps it.

    Whether the file is there already is for the caller to look at once it has the name. Where
    nothing can be written or locked, nobody keeps a name from anybody.
    """
    # of the whole name, of which a hidden one may have room for a part
    digest = hashlib.sha256(target.name.encode(errors="surrogateescape")).hexdigest()[:16]
    path = hidden_beside(target, f".{digest}.claim{SUFFIX}", _SHOWN)
    while True:
        try:
            make_folder(target.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:  # the save itself will say so
            return NameClaim(path, None)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return NameClaim(path, descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except OSError:  # a file system without locks
            path.unlink(missing_ok=True)
            os.close(descriptor)
            return NameClaim(path, None)
        os.close(descriptor)  # who had it let go of it before it was locked here


def remove_stale_parts(folder: Path) -> None:
    """Remove the unfinished files of processes that are gone. It never fails."""
    for path in folder.glob(f".*{SUFFIX}"):
        # locked by a live process, removed by another one, or not ours to remove
        with suppress(OSError):
            is_folder = is_unfinished_folder(path)
            descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # a claim of that name may have been let go of and taken by another process since
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    shutil.rmtree(path) if is_folder else path.unlink()
            finally:
                os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def try_to_write(folder: Path) -> None:
    """Find out whether files can be written to a folder, which is not made if it is missing.

    Raises:
        OSError: they cannot, or the folder cannot be made.
    """
    there = folder.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    try:
        # without a name, so that not even a process that is killed here leaves something
        os.close(os.open(there, getattr(os, "O_TMPFILE", os.O_DIRECTORY) | os.O_WRONLY))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
        file, part = open_part(there / "trial")  # a system that has no such files
        file.close()
        part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make what was renamed in a folder, or added to it, durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
