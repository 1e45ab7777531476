"""The seal of a checkpoint: its size, a checksum and what it is, told at the end of the file.

It is the comment of a zip file, which torch and other tools pass over. A zip file stores a checksum
of each part's data, but none of the directory that says where the parts are; the seal covers that,
so that together they cover all that is read.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile, is_zipfile

from trainer_hooks.checkpoint.sums import damaged_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.checkpoint.sums import Sums

__all__ = ["TAIL", "Summary", "check", "read_summary", "seal"]

TAIL = 2048
"""Bytes from the end of a file that hold its seal."""

_MAGIC = b"trainer_hooks:"
_END = b"PK\x05\x06"
_END_SIZE = 22
_CRC_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Summary:
    """What a checkpoint is, told without loading it.

    Attributes:
        saved_at: when it was saved, in nanoseconds since 1970; later in one training is greater.
        module: the name of the module's class; empty if unknown.
        is_resumable: whether it holds more than weights.
        epoch: epochs completed.
        batches: training batches completed.
        step: optimizer steps completed.
        origin: what its run has in common with a restart of it, and not with others; empty if
            unknown.
        process: what saved it; empty if unknown.
    """

    saved_at: int
    module: str = ""
    is_resumable: bool = False
    epoch: int = 0
    batches: int = 0
    step: int = 0
    origin: str = ""
    process: str = ""

    @classmethod
    def of(
        cls,
        checkpoint: Mapping[str, Any],
        saved_at: int,
        module: str = "",
        origin: str = "",
        process: str = "",
    ) -> Summary:
        """Return what `checkpoint` is; another tool may have filled it in another way."""
        own, loops = checkpoint.get("trainer_hooks"), checkpoint.get("loops")
        progress = own.get("progress") if isinstance(own, dict) else None
        if progress is None and isinstance(loops, dict):  # where format 1 has it
            progress = loops.get("fit_loop")
        return cls(
            saved_at,
            module,
            "optimizer_states" in checkpoint,
            _count(checkpoint, "epoch"),
            _count(progress, "batches_completed"),
            _count(checkpoint, "global_step"),
            origin,
            process,
        )


def seal(file: IO[bytes], summary: Summary) -> None:
    """Put the seal at the end of a zip file that is open for reading and writing.

    Raises:
        ValueError: it is no zip file, or has a comment already.
    """
    with ZipFile(file) as parts:
        directory = parts.start_dir
    end = file.seek(0, io.SEEK_END)
    file.seek(directory)
    listing = file.read()
    if listing[-_END_SIZE : -_END_SIZE + len(_END)] != _END:
        raise ValueError("the zip file does not end with its directory")
    text = json.dumps({"size": end, "directory": directory, **asdict(summary)}).encode()
    length = struct.pack("<H", len(_MAGIC) + _CRC_DIGITS + len(text))
    listing = listing[:-2] + length
    file.seek(end - 2)
    file.write(length + _MAGIC + _checksum(listing, text) + text)


def check(file: IO[bytes], sums: Sums | None = None) -> None:
    """Compare a file with its seal, if it has one, and each part with the checksum beside it.

    torch does not: a bit that changed on the disk would become another weight. What is no zip file
    at all is left to torch to refuse.

    Args:
        file: the file, open.
        sums: the stretches of it that were summed up already, when it was read.

    Raises:
        ValueError: it is not what was written; the message says what differs.
    """
    size = file.seek(0, io.SEEK_END)
    record = _record(_tail(file, size))
    if record is not None:
        text, crc, length = record
        told = json.loads(text)
        if told["size"] + length != size:
            raise ValueError(f"it has {size} bytes, and {told['size'] + length} were written")
        file.seek(told["directory"])
        listing = file.read(told["size"] - told["directory"])
        if _checksum(listing, text) != crc:
            raise ValueError("its directory has another checksum")
    try:
        if is_zipfile(file):
            with ZipFile(file) as parts:
                damaged = damaged_part(parts, file.fileno(), sums or {})
            if damaged is not None:
                raise ValueError(f"{damaged} has another checksum")
    except (BadZipFile, EOFError, RuntimeError, NotImplementedError, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def read_summary(tail: bytes) -> Summary | None:
    """Return what the seal says, or None without one. What it says is not verified.

    Args:
        tail: the last `TAIL` bytes of a file, or all of a shorter one.

    Raises:
        ValueError: there is a seal, and it cannot be read.
    """
    record = _record(tail)
    if record is None:
        return None
    told = json.loads(record[0])
    try:
        names = Summary.__slots__
        return Summary(**{name: told[name] for name in names if name in told})
    except TypeError as error:
        raise ValueError(f"its seal cannot be read: {error}") from error


def _count(state: Any, name: str) -> int:
    """Return a counter of a state, or 0 where there is none."""
    value = state.get(name) if isinstance(state, dict) else None
    return value if isinstance(value, int) else 0


def _record(tail: bytes) -> tuple[bytes, bytes, int] | None:
    """Return a seal's text, its checksum, and the length of the whole; None without a seal."""
    # zipfile wants the whole file, of which the rest may be far away
    start = tail.rfind(_END + b"\x00\x00\x00\x00")
    comment = tail[start + _END_SIZE :] if start >= 0 else b""
    if not comment.startswith(_MAGIC):
        return None
    crc, text = comment[len(_MAGIC) :][:_CRC_DIGITS], comment[len(_MAGIC) + _CRC_DIGITS :]
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("its end is missing or damaged") from error
    if not isinstance(told, dict) or not all(
        isinstance(told.get(name), int) and told[name] >= 0
        for name in ("size", "directory", "saved_at")
    ):
        raise ValueError("its seal is damaged")
    return text, crc, len(comment)


def _tail(file: IO[bytes], size: int) -> bytes:
    file.seek(max(0, size - TAIL))
    return file.read(TAIL)


def _checksum(listing: bytes, text: bytes) -> bytes:
    return f"{zlib.crc32(text, zlib.crc32(listing)):0{_CRC_DIGITS}x}".encode()
