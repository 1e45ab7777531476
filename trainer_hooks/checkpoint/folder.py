"""A checkpoint that is a folder: the parts of several processes, what else there is, and a seal.

::

    NAME.ckpt/
        .metadata, __0_0.distcp, __1_0.distcp...   tensors, by torch.distributed.checkpoint
        run.pt                                     all else, as a checkpoint in one file has it
        seal.json                                  written last: what each of these files is

A folder without its seal is none. Sums and sizes of all files are in the seal.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import zlib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import hidden_beside
from trainer_hooks.checkpoint.parts import SUFFIX, make_folder, remove_stale_parts, sync_folder
from trainer_hooks.checkpoint.placing import SEAL, is_sealed
from trainer_hooks.checkpoint.seal import Summary
from trainer_hooks.checkpoint.sums import summed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "RUN", "check_folder", "folder_summary", "is_folder", "open_folder_part", "seal_folder",
    "size_of_folder", "sum_of",
]  # fmt: skip

RUN = "run.pt"
_SHOWN = 60

Sums = "dict[str, tuple[int, int]]"
"""By a file's name its bytes and its checksum."""


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a checkpoint that is a folder, sealed."""
    return is_sealed(Path(path))


def open_folder_part(target: Path) -> tuple[Path, int]:
    """Make an unfinished folder beside `target`; return its path and a lock, to be closed.

    What killed processes left unfinished goes first.
    """
    make_folder(target.parent)
    remove_stale_parts(target.parent)
    while True:
        path = hidden_beside(target, f".{secrets.token_hex(4)}{SUFFIX}", _SHOWN)
        try:
            path.mkdir()
        except FileExistsError:
            continue
        lock = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks, where nothing is tidied either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)  # another process took it for a leftover before it was locked


def sum_of(file: Path) -> tuple[int, int]:
    """Return a file's bytes and its checksum."""
    with file.open("rb") as content:
        return summed(content)


def seal_folder(folder: Path, sums: Mapping[str, tuple[int, int]], summary: Summary) -> None:
    """Write the seal of a folder whose files are all durable, durably."""
    text = json.dumps({**asdict(summary), "files": {k: list(v) for k, v in sums.items()}})
    with (folder / SEAL).open("w", encoding="utf-8") as file:
        file.write(f"{text}\n{zlib.crc32(text.encode()):08x}\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def check_folder(folder: Path) -> None:
    """Compare all files of a folder with its seal.

    Raises:
        ValueError: it is not what was written; the message says what differs.
        OSError: a file cannot be read.
    """
    files = _told(folder)["files"]
    for name, told in files.items():
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        size = (folder / name).stat().st_size
        if size != told[0]:
            raise ValueError(f"{name} has {size} bytes, and {told[0]} were written")
        if list(sum_of(folder / name)) != told:
            raise ValueError(f"{name} has another checksum")


def folder_summary(folder: Path) -> Summary:
    """Return what the seal of a folder says; nothing else is verified.

    Raises:
        ValueError: it cannot be read.
    """
    told = _told(folder)
    return Summary(**{name: told[name] for name in Summary.__slots__ if name in told})


def size_of_folder(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _told(folder: Path) -> dict[str, Any]:
    text, _, crc = (folder / SEAL).read_text(encoding="utf-8", errors="replace").partition("\n")
    if crc.strip() != f"{zlib.crc32(text.encode()):08x}":
        raise ValueError("its seal is damaged")
    told: dict[str, Any] = json.loads(text)
    return told
