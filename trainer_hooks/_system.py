"""Differences of operating systems: locks, renames, folders on disk, processes.

Windows has no `fcntl`, opens no folder, neither renames nor deletes a file that is open, and its
`os.kill` ends a process whatever the number of the signal.
"""

from __future__ import annotations

import errno
import ntpath
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

IS_WINDOWS = os.name == "nt"

_locking: Any = import_module("msvcrt" if IS_WINDOWS else "fcntl")

_LOCKED_PLACE = 2**30
"""The byte of a file that stands for its lock on Windows: behind its end, so that all is read."""

_LOCKED = (errno.EACCES, errno.EDEADLK, 0)
"""The numbers of the error of a file that is locked there; wine gives 0."""

_TRIES, _FIRST_WAIT = 12, 0.005
"""How often a file is moved over one that somebody has open, and the first wait in seconds."""

_LONGEST_PATH = 259

_SYNCHRONIZE, _QUERY_LIMITED_INFORMATION, _WAIT_TIMEOUT = 0x100000, 0x1000, 258

_STARTED_AT = 19
"""The field of `process_fields` with the start of a process, in clock ticks since boot."""

_FORBIDDEN = frozenset('<>:"/\\|?*')
_DEVICES = frozenset(
    {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(1, 10))}
)

O_BINARY: int = getattr(os, "O_BINARY", 0)
"""Flag of `os.open`, without which Windows changes line ends."""


# --- files ---


def lock_file(descriptor: int, *, waits: bool = False) -> None:
    """Lock an open file, or an open folder, until it is closed.

    The system releases the lock of a process that was killed.

    Args:
        descriptor: of the file.
        waits: whether to wait for a process that holds the lock.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file system has no locks.
    """
    # not filelock: it opens a path itself, truncates the file, and on Windows locks its first byte,
    # which nobody can read then. Here it is a checkpoint that is being written, or a folder
    if not IS_WINDOWS:
        _locking.flock(descriptor, _locking.LOCK_EX | (0 if waits else _locking.LOCK_NB))
        return
    while True:
        try:
            # `LK_LOCK` waits for ten seconds, and then fails as well
            _at_lock(descriptor, _locking.LK_LOCK if waits else _locking.LK_NBLCK)
        except OSError as error:
            if error.errno not in _LOCKED:
                raise
            if not waits:
                raise BlockingIOError(errno.EWOULDBLOCK, "it is locked") from error
        else:
            return


def unlock_file(descriptor: int) -> None:
    """Release the lock of an open file, in the processes that share it as well."""
    if IS_WINDOWS:
        _at_lock(descriptor, _locking.LK_UNLCK)
    else:
        _locking.flock(descriptor, _locking.LOCK_UN)


def _at_lock(descriptor: int, mode: int) -> None:
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _LOCKED_PLACE, os.SEEK_SET)
    try:
        _locking.locking(descriptor, mode, 1)
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)


def sync_file(descriptor: int) -> None:
    """Write an open file to disk."""
    # on macOS fsync leaves the data in the cache of the drive
    if hasattr(_locking, "F_FULLFSYNC"):
        with suppress(OSError):  # of a file system that cannot
            _locking.fcntl(descriptor, _locking.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Write a folder to disk, so that files renamed or added in it are durable."""
    if IS_WINDOWS:  # it opens no folder, and keeps a journal of names
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Move a file or folder to a path, over a file that is there.

    Windows moves nothing over a file that is open, as a virus scanner or a viewer may have it for a
    moment: there it is tried for about 20 seconds.

    Raises:
        OSError: it cannot be moved.
    """
    for attempt in range(_TRIES if IS_WINDOWS else 1):
        try:
            source.replace(target)
        except PermissionError as error:
            if not IS_WINDOWS or target.is_dir():
                raise
            last = error
            time.sleep(_FIRST_WAIT * 2**attempt)
        else:
            return
    raise PermissionError(
        errno.EACCES, "another program has it open, and Windows replaces no open file", str(target)
    ) from last


_seeking = threading.Lock()


def read_at(descriptor: int, target: memoryview, place: int) -> int:
    """Read bytes from an offset into `target`; return their number. The file's position stays."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], place)
    with _seeking:  # the position is one for all threads
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, place, os.SEEK_SET)
        try:
            data = os.read(descriptor, len(target))
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)
    target[: len(data)] = data
    return len(data)


def name_fault(name: str) -> str:
    """Return why this system gives no file such a name; empty if it does."""
    if not IS_WINDOWS:
        return ""
    bad = sorted(_FORBIDDEN.intersection(name) - {"/", "\\"})
    if bad:
        # a name after a colon would be a hidden stream of the file before it
        return f"Windows allows no {' '.join(bad)} in a name of a file"
    for part in Path(name).parts:
        if part.partition(".")[0].rstrip().upper() in _DEVICES:
            return f"{part!r} is a device of Windows, and no name of a file"
        if part.endswith((".", " ")) and part not in (".", ".."):
            return f"Windows drops the last character of {part!r}"
    return ""


def path_fault(path: str | os.PathLike[str]) -> str:
    """Return why this system has no file at such a path, by its names; empty if it may have one."""
    drive, names = ntpath.splitdrive(path)
    # `C:\\runs` begins with a drive; `a:b` would be a hidden stream of the file `a`
    return name_fault(names if drive and names.startswith(("/", "\\")) else os.fspath(path))


def length_fault(path: str | os.PathLike[str]) -> str:
    """Return why this system may open no path so long; empty if it opens it."""
    # the prefix \\?\ would show in messages and checkpoints, and most other programs do not take it
    if IS_WINDOWS and len(os.path.abspath(path)) > _LONGEST_PATH:  # noqa: PTH100 - no `./~`
        return (
            f"Windows opens no path of more than {_LONGEST_PATH} characters, unless "
            "LongPathsEnabled is set in its registry"
        )
    return ""


def without_file_scheme(path: str) -> str:
    """Return the path in an address such as `file:///runs`, and any other text unchanged."""
    if not path.startswith("file://"):
        return path
    path = path.removeprefix("file://")
    # file:///C:/runs: the first slash is no part of the path
    return path[1:] if IS_WINDOWS and re.match("/[a-zA-Z]:", path) else path


def path_end(path: str, count: int) -> str:
    """Return the last `count` names of a path or an address, with `/` between them."""
    parts = re.split(r"[\\/]" if IS_WINDOWS else "/", path)
    return "/".join(parts[-count:])


# --- processes ---


def shell_line(words: Sequence[str]) -> str:
    """Return a command as the shell of this system takes it."""
    import shlex

    return subprocess.list2cmdline(words) if IS_WINDOWS else shlex.join(words)


def split_shell_line(line: str) -> list[str]:
    """Return the words of a command.

    Raises:
        ValueError: a quote is left open.
    """
    import shlex

    if not IS_WINDOWS:
        return shlex.split(line)
    # there a backslash is part of a path, and only a double quote quotes
    words = shlex.shlex(line, posix=True, punctuation_chars=False)
    words.whitespace_split, words.escape, words.quotes, words.commenters = True, "", '"', ""
    return list(words)


def is_running(pid: int) -> bool:
    """Return whether a process of this machine runs, and is none that is only to be reaped."""
    if IS_WINDOWS:
        return _is_running_on_windows(pid)
    try:
        os.kill(pid, 0)  # signal 0 is never sent: the call only looks for the process
    except PermissionError:  # of another user
        return True
    except (OSError, OverflowError):
        return False
    return not has_ended(process_fields(pid))


def process_fields(pid: int) -> list[str]:
    """Return the fields of Linux's `/proc/PID/stat` after the name; none without that file."""
    try:
        # bytes, and from the last parenthesis on: the name may hold anything, in any encoding
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    return stat.rpartition(b")")[2].decode("ascii").split()


def has_ended(fields: list[str]) -> bool:
    """Return whether a process is only to be reaped, by its `process_fields`."""
    # its parent may never take notice, as the first process of a container
    return fields[:1] in (["Z"], ["X"])


def process_start(pid: int) -> str | None:
    """Return when a process began, in a form of this system; None if it has ended.

    It distinguishes the process from a later one with the same number.
    """
    if IS_WINDOWS:
        return _start_on_windows(pid)
    fields = process_fields(pid)
    if fields:
        return None if has_ended(fields) else fields[_STARTED_AT]
    if Path("/proc/self/stat").exists():
        return None
    # macOS has no such files; the time is of whole seconds
    environ = {**os.environ, "LC_ALL": "C"}
    words = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        told = subprocess.run(words, capture_output=True, text=True, env=environ, check=False)
    except OSError:
        return None
    state, _, began = told.stdout.strip().partition(" ")
    return None if state.startswith("Z") else "-".join(began.split()) or None


def _start_on_windows(pid: int) -> str | None:
    import ctypes

    library: Any = ctypes
    kernel = library.windll.kernel32
    process = kernel.OpenProcess(_SYNCHRONIZE | _QUERY_LIMITED_INFORMATION, False, pid)
    if not process:
        return None
    try:
        # of a process that has ended there are times, too
        if kernel.WaitForSingleObject(process, 0) != _WAIT_TIMEOUT:
            return None
        times = [ctypes.c_ulonglong() for _ in range(4)]
        done = kernel.GetProcessTimes(process, *map(ctypes.byref, times))
        return str(times[0].value) if done else None
    finally:
        kernel.CloseHandle(process)


def _is_running_on_windows(pid: int) -> bool:
    import ctypes

    library: Any = ctypes
    kernel = library.windll.kernel32
    process = kernel.OpenProcess(_SYNCHRONIZE, False, pid)
    if not process:
        return False
    try:
        # what can be waited for has not ended
        return bool(kernel.WaitForSingleObject(process, 0) == _WAIT_TIMEOUT)
    finally:
        kernel.CloseHandle(process)


def kill_process(pid: int) -> None:
    """End a process at once: no handler and no `finally` runs in it."""
    # on Windows any number of a signal does
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def as_group() -> dict[str, Any]:
    """Return the arguments of `Popen` for a process that gets no Ctrl-C from this terminal.

    On POSIX it is the first of a group, which `kill_group` ends as a whole.
    """
    if IS_WINDOWS:
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)}
    return {"start_new_session": True}


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started with `as_group`, on POSIX with those that it started."""
    if IS_WINDOWS:
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
