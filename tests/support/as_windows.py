"""A stand-in for Windows on Linux: `python tests/support/as_windows.py FILE...` runs tests in it.

The package sees the names of `os`, `signal`, `select` and `time` that Windows has, and no module of
POSIX. For everybody, a file that any process of the tests has open can be neither deleted nor
moved, nor be moved over; a folder cannot be opened; `multiprocessing` spawns; a file that is opened
as text without an encoding is an error; and consoles know no character outside of cp1252. What the
tests themselves import stays as it is. Each Python process that is started is a stand-in as well.

On Windows itself the same command runs the same tests, with nothing in the place of anything.
"""

# These functions take the place of those that pathlib calls.
# ruff: noqa: A002, PTH112, PTH114, PTH115

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import multiprocessing
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import resource_tracker
from types import ModuleType, SimpleNamespace
from typing import Any

from other_system import PACKAGE, LeaveOut, Seen, begin_children, is_of_package

ENCODING = "cp1252"
"""The encoding of a console in western Europe and America."""

MODULES = frozenset({"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"})
"""Modules that Windows lacks."""

_OS = """
    CLD_EXITED EX_OK F_LOCK F_TLOCK F_ULOCK GRND_NONBLOCK NGROUPS_MAX O_ACCMODE O_ASYNC O_CLOEXEC
    O_DIRECT O_DIRECTORY O_DSYNC O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE
    P_ALL P_PID RTLD_NOW SCHED_OTHER WCONTINUED WEXITED WNOHANG WNOWAIT WUNTRACED
    chown chroot confstr copy_file_range ctermid environb eventfd fchdir fchmod fchown fdatasync
    fork forkpty fpathconf fsync_range fwalk get_blocking getegid getenvb geteuid getgid getgroups
    getloadavg getpgid getpgrp getpriority getresuid getsid getuid getxattr initgroups killpg
    lchown lockf lstat_ns major makedev memfd_create minor mkfifo mknod nice openpty pathconf
    pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn posix_spawnp pread preadv pwrite
    pwritev readv register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile
    set_blocking setegid setgid setgroups setpgid setpriority setsid setuid splice statvfs sync
    sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid writev WIFSIGNALED
"""
OS = frozenset(_OS.split())
"""Names that `os` lacks there; `set_blocking` it has from Python 3.12 on."""

SIGNALS = frozenset({"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"})
"""The signals that Windows shares with POSIX."""


SELECT = frozenset({"devpoll", "epoll", "kevent", "kqueue", "poll"})
TIME = frozenset(
    {"clock_getres", "clock_gettime", "clock_gettime_ns", "clock_settime", "pthread_getcpuclockid",
     "tzset"}
)  # fmt: skip


def kill(pid: int, number: int) -> None:
    """End a process, whatever the number, as Windows does; 0 is Ctrl-C to a whole group there."""
    if number == 0:
        raise AssertionError("os.kill(pid, 0) sends Ctrl-C on Windows")
    if pid == os.getpid() and number in (signal.SIGINT, signal.SIGTERM):
        signal.raise_signal(number)  # which tests send themselves, to try a handler
    else:
        os.kill(pid, signal.SIGKILL)


# --- files that are open ---


def _is_open(path: str) -> bool:
    """Whether this process or one of its children has a file open or mapped, or one in a folder."""
    inside = f"{path}{os.sep}"
    for process in _family():
        folder = f"/proc/{process}/fd"
        try:
            for name in _real["listdir"](folder):
                with suppress(OSError):  # it was closed
                    file = os.readlink(f"{folder}/{name}")
                    if file == path or file.startswith(inside):
                        return True
            with _real["open"](f"/proc/{process}/maps", encoding="utf-8") as maps:
                mapped = maps.read()
        except OSError:
            continue  # it has ended
        # a search of the text: thousands of lines, at each file that is deleted or moved
        if f" {path}\n" in mapped or f" {inside}" in mapped:
            return True
    return False


def _family() -> list[int]:
    parents = {}
    for name in _real["listdir"]("/proc"):
        if name.isdecimal():
            try:
                with _real["open"](f"/proc/{name}/stat", encoding="utf-8") as stat:
                    parents[int(name)] = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    family = [os.getpid()]
    for process in family:
        family += [child for child, parent in parents.items() if parent == process]
    return family


def _require_closed(*paths: Any) -> None:
    for path in paths:
        text = os.path.realpath(os.fsdecode(path)) if not os.path.islink(path) else ""
        if text and _is_open(text):
            raise PermissionError(
                errno.EACCES, "it is open, and Windows refuses", os.fsdecode(path)
            )


_real: dict[str, Any] = {
    "open": builtins.open,
    "import": builtins.__import__,
    "os_open": os.open,
    "popen": subprocess.Popen.__init__,
    **{name: getattr(os, name) for name in ("listdir", "remove", "rename", "replace")},
}


def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    if dir_fd is None and not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Windows opens no folder", os.fsdecode(path))
    return _real["os_open"](path, flags, mode, dir_fd=dir_fd)


def _remove(path: Any, **options: Any) -> None:
    # `tempfile` deletes what it has open, and does not on Windows
    if sys._getframe(1).f_globals.get("__name__") != "tempfile":
        _require_closed(path)
    _real["remove"](path, **options)


def _rename(source: Any, target: Any, **options: Any) -> None:
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "Windows renames over no file", os.fsdecode(target))
    _require_closed(source)
    _real["rename"](source, target, **options)


def _replace(source: Any, target: Any, **options: Any) -> None:
    _require_closed(source)
    if os.path.lexists(target):
        if os.path.isdir(target) and not os.path.islink(target):
            raise PermissionError(errno.EACCES, "it is a folder", os.fsdecode(target))
        _require_closed(target)
    _real["replace"](source, target, **options)


def _text_needs_an_encoding(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
    caller = sys._getframe(1)
    if caller.f_globals.get("__name__") == "pathlib" and caller.f_back is not None:
        caller = caller.f_back
    encoding = options.get("encoding") or (len(more) > 1 and more[1])
    if is_of_package(caller) and "b" not in mode and not encoding:
        raise AssertionError(f"{file!r} is opened as text without an encoding: cp1252 on Windows")
    return _real["open"](file, mode, *more, **options)


def _popen(self: Any, *arguments: Any, creationflags: int = 0, **options: Any) -> None:
    # the caller is behind the function that lets children begin
    if is_of_package(sys._getframe(2)):
        unknown = {"preexec_fn", "pass_fds", "start_new_session", "process_group"} & {
            name for name, value in options.items() if value
        }
        assert not unknown, f"Popen takes no {unknown} on Windows"
    if creationflags:
        options["start_new_session"] = True
    _real["popen"](self, *arguments, **options)


# --- modules ---


def _import(name: str, globals: Any = None, *more: Any, **options: Any) -> ModuleType:
    caller = str((globals or {}).get("__name__") or "").partition(".")[0]
    if caller == PACKAGE and name in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _real["import"](name, globals, *more, **options)


def _msvcrt() -> ModuleType:
    """Return the part of `msvcrt` that locks bytes of files, made of the locks of Linux."""
    import fcntl

    module = ModuleType("msvcrt")
    modes = {"LK_UNLCK": 0, "LK_LOCK": 1, "LK_NBLCK": 2}

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 2**20, "it would lock what others read"
        assert count == 1
        how = (fcntl.LOCK_UN, fcntl.LOCK_EX, fcntl.LOCK_EX | fcntl.LOCK_NB)[mode]
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    vars(module).update(modes, locking=locking)
    return module


def _kernel() -> SimpleNamespace:
    """Return the calls of `kernel32` by which a process is found."""

    def still_runs(pid: int) -> bool:
        try:
            with _real["open"](f"/proc/{pid}/stat", encoding="utf-8") as stat:
                return stat.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def times(pid: int, created: Any, *others: Any) -> int:
        with _real["open"](f"/proc/{pid}/stat", encoding="utf-8") as stat:
            created._obj.value = int(stat.read().rpartition(")")[2].split()[19])
        return 1

    return SimpleNamespace(
        GetProcessTimes=times,
        OpenProcess=lambda rights, inherits, pid: pid if still_runs(pid) else 0,
        WaitForSingleObject=lambda handle, wait: 258 if still_runs(handle) else 0,
        CloseHandle=lambda handle: 1,
    )


def begin() -> None:
    """Make this process a stand-in, before the package is imported."""
    if isinstance(sys.modules["os"], Seen):  # it began with one
        return
    assert PACKAGE not in sys.modules, "the package has read the names of Linux already"
    absent = frozenset(n for n in vars(signal) if n.startswith("SIG") and n.isupper()) - SIGNALS
    absent = absent - {"SIG_DFL", "SIG_IGN"} | {
        "alarm", "getitimer", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "sigpending",
        "siginterrupt", "sigtimedwait", "sigwait", "sigwaitinfo",
    }  # fmt: skip
    numbers = {getattr(signal, name) for name in SIGNALS}
    sys.modules["msvcrt"] = _msvcrt()
    ctypes.windll = SimpleNamespace(kernel32=_kernel())  # type: ignore[attr-defined]
    os.open, os.remove, os.unlink = _open, _remove, _remove  # type: ignore[assignment]
    os.rename, os.replace = _rename, _replace
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    builtins.open = _text_needs_an_encoding
    sys.modules["os"] = Seen(os, OS, name="nt", kill=kill)
    sys.modules["signal"] = Seen(signal, absent, valid_signals=lambda: numbers)
    sys.modules["select"], sys.modules["time"] = Seen(select, SELECT), Seen(time, TIME)
    builtins.__import__ = _import
    multiprocessing.set_start_method("spawn", force=True)
    subprocess.CREATE_NEW_PROCESS_GROUP = 0x200  # type: ignore[attr-defined]
    subprocess.Popen.__init__ = _popen  # type: ignore[method-assign]
    begin_children("as_windows", PYTHONIOENCODING=ENCODING)


_NAMES = re.compile(
    rf"\b(os\.({'|'.join(OS)})\b|SIG(?!{'|'.join(n[3:] for n in SIGNALS)}|_)[A-Z]+|"
    rf"({'|'.join(MODULES)})\.\w|flock)|[\"']/(proc|dev)/|renameat2|symlink_to"
)
"""The names in the text of a test that needs POSIX itself."""


def lend_names() -> None:
    """On Windows itself: let files of tests name what it lacks; the tests that use it are left out.

    The package finds none of them, as before.
    """
    lent_signals = {n: 100 + i for i, n in enumerate(("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP"))}
    for module, lent in ((os, {"geteuid": lambda: 1, "getuid": lambda: 1}), (signal, lent_signals)):
        for name, value in lent.items():
            setattr(module, name, value)
        sys.modules[module.__name__] = Seen(module, frozenset(lent))
    for name in MODULES:
        sys.modules[name] = ModuleType(name)
    builtins.__import__ = _import


def capture_in_its_encoding() -> None:
    """Let what pytest captures of a test be written and read in the encoding of a console."""
    from _pytest import capture

    def begin_text(self: Any) -> None:
        io.TextIOWrapper.__init__(
            self, io.BytesIO(), encoding=ENCODING, newline="", write_through=True
        )

    def text(self: Any) -> str:
        return str(self.buffer.getvalue().decode(ENCODING))

    capture.CaptureIO.__init__ = begin_text  # type: ignore[method-assign]
    capture.CaptureIO.getvalue = text  # type: ignore[method-assign]


if __name__ == "__main__":
    if os.name == "nt":
        lend_names()
    else:
        begin()
    import pytest

    if os.name != "nt":
        capture_in_its_encoding()
        # it would keep the terminal open that a test puts in the place of standard error
        resource_tracker.ensure_running()
    left_out = LeaveOut(_NAMES, "posix")
    sys.exit(pytest.main([*sys.argv[1:], "-p", "no:xdist"], plugins=[left_out]))
