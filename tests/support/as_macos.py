"""A stand-in for macOS on Linux: `python tests/support/as_macos.py FILE...` runs tests in it.

The package sees `sys.platform` and the names of `os`, `signal` and `select` that macOS has, with
`fcntl.F_FULLFSYNC`; there is neither `/proc` nor `/dev/shm`; `multiprocessing` spawns; and in the
tests' folders the case of a name makes no difference. Each Python process that is started is a
stand-in as well.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import io
import multiprocessing
import os
import re
import select
import signal
import sys
import tempfile
from multiprocessing import resource_tracker
from typing import Any

from other_system import PACKAGE, LeaveOut, Seen, begin_children, is_of_package

_OS = """
    CLONE_NEWUSER EFD_CLOEXEC GRND_NONBLOCK MFD_CLOEXEC O_DIRECT O_LARGEFILE O_NOATIME O_PATH
    O_RSYNC O_TMPFILE P_PIDFD POSIX_FADV_DONTNEED SCHED_BATCH SCHED_IDLE XATTR_CREATE
    copy_file_range eventfd eventfd_read eventfd_write fdatasync fallocate getrandom getresgid
    getresuid getxattr listxattr memfd_create pidfd_open pipe2 posix_fadvise posix_fallocate
    removexattr sched_getaffinity sched_getparam sched_getscheduler sched_setaffinity
    sched_setscheduler setns setresgid setresuid setxattr splice unshare
"""
OS = frozenset(_OS.split())
"""Names that `os` lacks there."""

SIGNALS = frozenset(
    {"SIGCLD", "SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "sigtimedwait",
     "sigwaitinfo"}
)  # fmt: skip
"""Names that `signal` lacks there."""

SELECT = frozenset({"EPOLLIN", "EPOLLOUT", "epoll"})

F_FULLFSYNC = 51

FULL_SYNCS: list[int] = []
"""The descriptors that were written through to the disk, in order."""

_ABSENT = ("/proc", "/dev/shm", "/sys")

_ROOT = tempfile.gettempdir()
"""The folder in which the case of a name makes no difference."""

_ASKED = ("open", "stat", "lstat", "listdir", "scandir")
"""The functions of `os` that look at what there is."""

_lstat, _listdir, _text_open = os.lstat, os.listdir, builtins.open


def _require_there(path: Any) -> None:
    """Raise for a path that macOS does not have, if the package asks for it."""
    if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
        return
    text = os.fsdecode(path)
    if not text.startswith(_ABSENT) or not any(
        text == root or text.startswith(f"{root}/") for root in _ABSENT
    ):
        return
    frame: Any = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__")) in ("pathlib", "genericpath"):
        frame = frame.f_back
    if frame is not None and is_of_package(frame):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)


def _asked(function: Any) -> Any:
    def call(path: Any = ".", *more: Any, **options: Any) -> Any:
        _require_there(path)
        return function(path, *more, **options)

    call.__module__, call.__name__, call.__qualname__ = "os", function.__name__, function.__name__
    return call


def _fcntl(descriptor: int, command: int, *more: Any) -> Any:
    if command == F_FULLFSYNC:
        FULL_SYNCS.append(descriptor)
        return 0
    return _fcntl_of_linux(descriptor, command, *more)


class _Library:
    """The library of C, without the functions of Linux's kernel."""

    def __init__(self, name: str | None, **options: Any) -> None:
        self._library = ctypes.CDLL(name, **options)

    def __getattr__(self, name: str) -> Any:
        if name in ("prctl", "renameat2"):
            raise AttributeError(name)
        return getattr(self._library, name)


_fcntl_of_linux = fcntl.fcntl


# --- names ---


def _in_its_case(path: Any) -> Any:
    """Return the path of a file of the tests as it is spelt on disk."""
    if isinstance(path, int) or not isinstance(path, str | os.PathLike):
        return path
    text = os.fspath(path)
    whole = os.path.abspath(text) if isinstance(text, str) else ""  # noqa: PTH100 - a link stays one
    if not whole.startswith(f"{_ROOT}/"):
        return path
    found = _ROOT
    for name in whole[len(_ROOT) + 1 :].split("/"):
        try:
            _lstat(f"{found}/{name}")
        except OSError:
            try:
                same = [n for n in _listdir(found) if n.lower() == name.lower()]
            except OSError:
                same = []
            name = same[0] if same else name
        found = f"{found}/{name}"
    return found if found != whole else path


def _folding(name: str, paths: int) -> Any:
    """Return a function of `os` whose first arguments are paths in any case."""

    function = getattr(os, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if options.get("dir_fd") is None and options.get("src_dir_fd") is None:
            arguments = (*map(_in_its_case, arguments[:paths]), *arguments[paths:])
        return function(*arguments, **options)

    call.__module__, call.__name__, call.__qualname__ = "os", name, name
    return call


_FOLDED = {
    "open": 1, "stat": 1, "lstat": 1, "listdir": 1, "scandir": 1, "remove": 1, "unlink": 1,
    "mkdir": 1, "rmdir": 1, "rename": 2, "replace": 2, "link": 2, "utime": 1, "chmod": 1,
    "access": 1, "readlink": 1,
}  # fmt: skip
"""The functions of `os` that take paths, and how many of them."""


def begin() -> None:
    """Make this process a stand-in, before the package is imported."""
    if isinstance(sys.modules["os"], Seen):  # it began with one
        return
    assert PACKAGE not in sys.modules, "the package has read the names of Linux already"
    for name, count in _FOLDED.items():
        function = _folding(name, count)
        setattr(os, name, _asked(function) if name in _ASKED else function)

    def open_(file: Any, *more: Any, **options: Any) -> Any:
        _require_there(file)
        return _text_open(_in_its_case(file), *more, **options)

    builtins.open = io.open = open_  # type: ignore[assignment]
    sys.modules["os"] = Seen(os, OS)
    sys.modules["sys"] = Seen(sys, frozenset(), platform="darwin")
    sys.modules["signal"] = Seen(signal, SIGNALS)
    sys.modules["select"] = Seen(select, SELECT)
    sys.modules["fcntl"] = Seen(fcntl, frozenset(), F_FULLFSYNC=F_FULLFSYNC, fcntl=_fcntl)
    sys.modules["ctypes"] = Seen(ctypes, frozenset(), CDLL=_Library)
    multiprocessing.set_start_method("spawn", force=True)
    begin_children("as_macos")


_NAMES = re.compile(
    rf"\b(os\.({'|'.join(OS)})\b)|(signal\.({'|'.join(SIGNALS)})\b)|[\"'f]/(proc|dev/shm)|"
    r"renameat2"
)
"""The names in the text of a test that needs Linux itself."""


if __name__ == "__main__":
    begin()
    import pytest

    # it would keep the terminal open that a test puts in the place of standard error
    resource_tracker.ensure_running()
    left_out = LeaveOut(_NAMES, "linux")
    sys.exit(pytest.main([*sys.argv[1:], "-p", "no:xdist"], plugins=[left_out]))
