"""Text files written atomically, and a check of paths before they are opened."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from trainer_hooks._system import is_running, move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TextIO

_MAX_NAME_BYTES = 255
"""Bytes that file systems allow for a file name."""


def file_fault(path: str | os.PathLike[str]) -> str:
    """Return why there is no regular file at `path`, such as "it is a folder"; empty if there is.

    Ask before a path of others is read: to open a pipe blocks until another process writes to it,
    and a device such as `/dev/zero` has no end.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - of a text that need not be a path
    except OSError as error:  # of a loop of links, a name that is too long, a folder without rights
        return f"it cannot be opened ({error.strerror})"
    except ValueError:
        return "its name holds a null character"
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISDIR(mode):
        return "it is a folder"
    return "it is no regular file but a pipe, a socket or a device, which is not read"


def is_missing(path: str | os.PathLike[str]) -> bool:
    """Return whether there is nothing at `path`; False if the system refuses to say."""
    # not Path.exists, which raises for a folder without rights and for a name that is too long
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def hidden_beside(path: Path, ending: str, most: int = _MAX_NAME_BYTES) -> Path:
    """Return the path of a hidden file in the folder of `path`, named `.NAME` and the ending.

    Args:
        path: a file.
        ending: the end of the new name.
        most: bytes of the old name to keep; fewer if the new name would be too long.
    """
    room = min(most, _MAX_NAME_BYTES - len(f".{ending}".encode()))
    name = path.name.encode(errors="surrogateescape")
    shown = name[:room].decode(errors="ignore") if len(name) > room else path.name
    return path.with_name(f".{shown}{ending}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a hidden file, which replaces that at `path` unless there is an error."""
    # by hand: the library for it, atomicwrites, is no longer maintained
    temporary = hidden_beside(path, f".{os.getpid()}.tmp")
    try:
        yield temporary
        move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, write: Callable[[TextIO], object]) -> None:
    """Replace a file atomically by one that `write` fills; on an error the old one stays."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        write(file)


def remove_stale_temporaries(folder: Path) -> None:
    """Delete the temporary files of `replacing` that killed processes have left in a folder."""
    for path in folder.glob(".*.tmp"):
        pid = path.stem.rpartition(".")[2]
        if not pid.isdecimal():
            continue
        if not is_running(int(pid)):
            # an error means: deleted by another process meanwhile, or no permission
            with suppress(OSError):
                path.unlink()
