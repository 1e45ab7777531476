"""Put finished files and folders in their places, and remove them, never half."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
from typing import TYPE_CHECKING

from trainer_hooks._files import hidden_beside

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SEAL", "SUFFIX", "is_sealed", "is_unfinished_folder", "remove_folder", "take_place"]

SUFFIX = ".trainer_hooks.part"
"""How the name of an unfinished file ends; it begins with a dot."""

SEAL = "seal.json"
"""The file of a folder that makes it a checkpoint."""

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{8}\.trainer_hooks\.part")
_SHOWN = 60
_EXCHANGE = 2
_HERE = -100


def is_sealed(path: Path) -> bool:
    """Return whether a path is a checkpoint that is a folder."""
    return (path / SEAL).is_file()


def is_unfinished_folder(path: Path) -> bool:
    """Return whether a path is a folder in which a save was, or is, under way."""
    return _is_real_folder(path) and _UNFINISHED.fullmatch(path.name) is not None


def take_place(part: Path, target: Path) -> None:
    """Put a finished file or folder in the place of what is there, which is removed then.

    At every moment the old one or the new one is whole in its place.

    Raises:
        OSError: a folder of other things is there, or it cannot be done.
    """
    if _is_real_folder(target) and not is_sealed(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not os.path.lexists(target) or not (part.is_dir() or _is_real_folder(target)):
        part.replace(target)
        return
    _exchange(part, target)
    remove_folder(part)


def remove_folder(path: Path) -> None:
    """Remove a folder, or a file, so that no half of it is taken for a checkpoint."""
    if not _is_real_folder(path):
        path.unlink(missing_ok=True)
        return
    if not path.name.startswith("."):
        hidden = hidden_beside(path, f".{secrets.token_hex(4)}{SUFFIX}", _SHOWN)
        path = path.rename(hidden)
    shutil.rmtree(path)


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _exchange(one: Path, other: Path) -> None:
    """Let two paths change places at once; where the system cannot, one after the other."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is not None:
        if not rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):
            return
        found = ctypes.get_errno()
        if found not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(found, os.strerror(found), str(other))
    aside = hidden_beside(other, f".{secrets.token_hex(4)}{SUFFIX}", _SHOWN)
    other.rename(aside)
    one.rename(other)
    aside.rename(one)
