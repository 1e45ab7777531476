"""Atomic writes: a file or folder is whole at its path, or absent, whenever a process dies.

Data is written to a hidden part file beside the target, synced, and moved. The part file is locked
while its process lives, so that leftovers of killed processes can be told from running saves.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from trainer_hooks._files import hidden_beside
from trainer_hooks._system import (
    IS_WINDOWS,
    O_BINARY,
    length_fault,
    lock_file,
    move,
    path_fault,
    sync_file,
    sync_folder,
    unlock_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PART_SUFFIX = ".trainer_hooks.part"
"""How the name of an unfinished file ends; it begins with a dot."""

SEAL = "seal.json"
"""The file of a folder that makes it a checkpoint."""

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{8}\.trainer_hooks\.part")


_NAME_BYTES = 60
"""Bytes of the target's name that a part file's name contains: file systems allow 255 in all."""

_HOUR = 3600.0

_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux's renameat2."""

_HERE = -100
"""AT_FDCWD: relative paths are relative to the working directory."""


@contextmanager
def open_atomically(target: Path) -> Iterator[IO[bytes]]:
    """Open a new file that is at `target` once the `with` block ends without an error.

    Its folder is made, and leftovers of killed processes in it are deleted.
    """
    # not the package `atomicwrites`: it locks nothing, so a leftover could not be told from a
    # running save
    # Windows would write to a hidden stream of the file before a colon
    fault = path_fault(target)
    if fault:
        raise OSError(errno.EINVAL, fault, str(target))
    make_folder(target.parent)
    remove_stale_parts(target.parent)
    file, part = open_part(target)
    try:
        with file:  # unlocked only after the rename, or another process might delete it as stale
            yield file
            # durable before it is renamed: after a power cut the name must not show an empty file
            file.flush()
            sync_file(file.fileno())
            if IS_WINDOWS:  # it moves no open file
                file.close()
            if target.is_dir():
                replace_atomically(part, target)  # a sharded folder of that name
            else:
                move(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    sync_folder(target.parent)  # the rename itself is durable only with its folder


def open_part(target: Path) -> tuple[IO[bytes], Path]:
    """Create and lock a part file beside `target`; return the open file and its path.

    The lock lasts as long as the file is open, and tells other processes that this one is alive:
    the system releases the lock of a process that was killed.
    """
    while True:
        path = hidden_beside(target, f".{secrets.token_hex(4)}{PART_SUFFIX}", _NAME_BYTES)
        try:
            # O_CREAT with 0o666, not tempfile's 0o600: the umask decides, as for any new file, and
            # reading the umask would change it for a moment in all threads
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | O_BINARY, 0o666)
        except FileExistsError:
            continue
        except FileNotFoundError as error:
            # Windows says no more of a path that is too long
            fault = length_fault(path)
            if not fault:
                raise
            raise OSError(errno.ENAMETOOLONG, fault, str(target)) from error
        with suppress(OSError):  # a file system without locks: there no stale files are deleted
            lock_file(descriptor, waits=True)
        if path.exists():
            return os.fdopen(descriptor, "w+b"), path
        os.close(descriptor)  # before the lock was taken, another process deleted it as stale


def open_folder_part(target: Path) -> tuple[Path, int | None]:
    """Create and lock a part folder beside `target`; return its path and the lock's descriptor.

    The caller closes the descriptor; it is None on Windows, which locks no folder. Leftovers of
    killed processes are deleted first.
    """
    make_folder(target.parent)
    remove_stale_parts(target.parent)
    while True:
        path = hidden_beside(target, f".{secrets.token_hex(4)}{PART_SUFFIX}", _NAME_BYTES)
        try:
            path.mkdir()
        except FileExistsError:
            continue
        if IS_WINDOWS:
            return path, None
        lock = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: there no stale files are deleted
            lock_file(lock, waits=True)
        if path.exists():
            return path, lock
        os.close(lock)  # before the lock was taken, another process deleted it as stale


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a folder into a new one that is at `target` once all are durable."""
    part, lock = open_folder_part(target)
    try:
        for file in source.iterdir():
            with file.open("rb") as whole, (part / file.name).open("wb") as copy:
                shutil.copyfileobj(whole, copy)
                copy.flush()
                sync_file(copy.fileno())
        sync_folder(part)
        replace_atomically(part, target)
        sync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            remove_folder(part)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def remove_stale_parts(folder: Path) -> None:
    """Delete the part files of processes that have died. It never fails."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - a Path of each file takes long, at each save
    except OSError:  # not there, or no permission
        return
    for name in names:
        if not (name.startswith(".") and name.endswith(PART_SUFFIX)):
            continue
        path = folder / name
        # an error means: locked by a live process, deleted by another one, or no permission
        with suppress(OSError):
            is_folder = is_unfinished_folder(path)
            if IS_WINDOWS:
                _remove_idle(path, is_folder)
                continue
            # open for writing, although nothing is written: on NFS, Linux emulates flock by a lock
            # that needs it
            descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
            try:
                lock_file(descriptor)
                # a reservation of that name may have been released and taken anew meanwhile
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    shutil.rmtree(path) if is_folder else path.unlink()
            finally:
                os.close(descriptor)


def _remove_idle(path: Path, is_folder: bool) -> None:
    """Delete a part that nothing has been written to for an hour, and a folder's for a day.

    On Windows a part is closed before it is moved, and a folder is never locked.

    Raises:
        OSError: a process has it open, or it is gone.
    """
    if time.time() - path.stat().st_mtime > (24 * _HOUR if is_folder else _HOUR):
        shutil.rmtree(path) if is_folder else path.unlink()


def replace_atomically(part: Path, target: Path) -> None:
    """Move a finished file or folder to `target`, and delete the previous one there.

    At every moment either the old or the new one is whole at `target`.

    Raises:
        OSError: a folder that is no checkpoint is there, or the move fails.
    """
    if _is_real_folder(target) and not is_sharded_folder(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    # a link is replaced, not what it points to
    if not os.path.lexists(target) or not (part.is_dir() or _is_real_folder(target)):
        move(part, target)
        return
    # not rename: it replaces no folder that holds files, and no folder by a file
    _exchange(part, target)
    remove_folder(part)


def _exchange(one: Path, other: Path) -> None:
    """Swap two paths atomically; where the system cannot, rename one after the other."""
    # Python's os has no renameat2, and older C libraries and other systems have none
    library = None if IS_WINDOWS else ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is not None:
        if not rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):
            return
        code = ctypes.get_errno()
        # these are of kernels and file systems that cannot exchange, such as NFS
        if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(code, os.strerror(code), str(other))
    # for a moment nothing is at `other`; a kill there leaves both whole, under hidden names
    aside = hidden_beside(other, f".{secrets.token_hex(4)}{PART_SUFFIX}", _NAME_BYTES)
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def remove_folder(path: Path) -> None:
    """Delete a file, or hide and then delete a folder, so that no half looks like a checkpoint."""
    if not _is_real_folder(path):
        path.unlink(missing_ok=True)
        return
    # what is hidden is no checkpoint to a search already
    if not path.name.startswith("."):
        hidden = hidden_beside(path, f".{secrets.token_hex(4)}{PART_SUFFIX}", _NAME_BYTES)
        path = path.rename(hidden)
    shutil.rmtree(path)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and sync each of them to disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    # another rank may make it at the same moment
    folder.mkdir(exist_ok=True)
    # the name of the new folder is an entry of its parent, and durable only with that
    sync_folder(folder.parent)


def check_writable(folder: Path) -> None:
    """Check that files can be written to a folder, without creating it if it is missing.

    Raises:
        OSError: no file can be written, or the folder cannot be made.
    """
    existing = folder.absolute()
    # lexists: a broken link in the way cannot be made a folder
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
    try:
        # O_TMPFILE makes a file without a name: a process that is killed here leaves nothing
        # without O_TMPFILE this fails with EISDIR, and the trial file below decides
        nameless = getattr(os, "O_TMPFILE", 0)
        os.close(os.open(existing, nameless | os.O_WRONLY))
    except OSError as error:
        # of a kernel or a file system without O_TMPFILE; Windows refuses to open any folder
        others = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
        if error.errno not in others and nameless:
            raise
        file, part = open_part(existing / "trial")
        file.close()
        part.unlink(missing_ok=True)


@dataclass(slots=True)
class NameReservation:
    """A file name reserved for a new file, so that no other process or run chooses the same.

    Attributes:
        path: a hidden file that stands for the name, locked as long as it is open.
        descriptor: that file, open; None where nothing can be locked, and once it is released.
    """

    path: Path
    descriptor: int | None

    def release(self) -> None:
        """Give the name up; if the file exists by now, the name stays taken by it."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is None:
            return
        if not IS_WINDOWS:  # it deletes no open file
            with suppress(OSError):
                self.path.unlink()
        # closing is not enough: a forked process may share the open file, and with it the lock
        with suppress(OSError):
            unlock_file(descriptor)
        os.close(descriptor)
        if IS_WINDOWS:
            with suppress(OSError):  # another process has opened it meanwhile, and keeps it
                self.path.unlink()


def reserve_name(target: Path) -> NameReservation | None:
    """Reserve the name of a new file, making its folder; None if another process or run holds it.

    The caller checks whether the file exists already once it holds the name. Where nothing can be
    written or locked, every process gets the name.
    """
    # a digest of the whole name, because the hidden name may have room only for a part of it
    digest = hashlib.sha256(target.name.encode(errors="surrogateescape")).hexdigest()[:16]
    path = hidden_beside(target, f".{digest}.claim{PART_SUFFIX}", _NAME_BYTES)
    while True:
        try:
            make_folder(target.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # the folder is not writable: the save itself raises that error
            return NameReservation(path, None)
        try:
            lock_file(descriptor)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return NameReservation(path, descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass  # its owner has deleted it since it was opened here
        except OSError:  # a file system without locks
            os.close(descriptor)
            path.unlink(missing_ok=True)
            return NameReservation(path, None)
        os.close(descriptor)  # released and deleted by its owner before it was locked here


def is_sharded_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a sharded checkpoint: a folder with a seal."""
    # not Path.is_file, which raises for a name that is too long
    return os.path.isfile(os.path.join(path, SEAL))  # noqa: PTH113, PTH118


def is_unfinished_folder(path: Path) -> bool:
    """Return whether a path is a part folder of a save that is running or was killed."""
    return _UNFINISHED.fullmatch(path.name) is not None and _is_real_folder(path)


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def size_of_folder(folder: Path) -> int:
    """Return the total size of the files in a folder, in bytes."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
