"""The checksums of a zip file's parts: compared once with the file, or while it is read."""

from __future__ import annotations

import io
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, TYPE_CHECKING, Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Sums = Mapping[int, tuple[int, int]]
    """By the place in the file where a stretch of it begins, its length and its checksum."""

__all__ = ["HEADER", "SummedFile", "damaged_part", "fast_crc32", "summed"]

HEADER = b"PK\x03\x04"
"""What each part of a zip file begins with, and so the file."""

_HEADER_SIZE = 30
_CHUNK = 1 << 18
_READ = 1 << 20
_MOST_THREADS = 4


class SummedFile(io.RawIOBase):
    """A file that sums up each stretch as it is read, while it lies in the processor's cache.

    Attributes:
        sums: what was read.
    """

    def __init__(self, file: IO[bytes], crc32: Callable[[Any, int], int]) -> None:
        super().__init__()
        self.sums: dict[int, tuple[int, int]] = {}
        self._descriptor = file.fileno()
        self._crc32 = crc32
        self._place = 0

    def readable(self) -> bool:
        """Return True: it is there to be read."""
        return True

    def seekable(self) -> bool:
        """Return True: any place of it can be read."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place and return it, as any file does."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place}.get(whence)
        self._place = offset + (os.fstat(self._descriptor).st_size if base is None else base)
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place

    def readinto(self, target: Any) -> int:
        """Fill `target` from the place on, note its checksum, and return how many bytes it got."""
        place, crc = self._place, 0
        with memoryview(target).cast("B") as whole:
            while self._place - place < len(whole):
                done = self._place - place
                with whole[done : done + _CHUNK] as chunk:
                    count = os.preadv(self._descriptor, [chunk], self._place)
                    crc = self._crc32(chunk[:count], crc)
                if not count:
                    break
                self._place += count
        length = self._place - place
        self.sums[place] = (length, crc)
        return length


def damaged_part(parts: ZipFile, descriptor: int, sums: Sums) -> str | None:
    """Return the name of a part that differs from its checksum, as `ZipFile.testzip` does.

    Several threads share the work unless it is done: summing up takes longer than reading.

    Args:
        parts: the zip file.
        descriptor: the same file, open.
        sums: the stretches that were summed up already; of a part that is one of them, nothing
            is read again but what stands before it.
    """
    listed = parts.infolist()
    is_damaged = partial(_is_damaged, parts, descriptor, sums, _crc32())
    if sums:
        return next((part.filename for part in listed if is_damaged(part)), None)
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        results = zip(listed, pool.map(is_damaged, listed), strict=True)
        return next((part.filename for part, is_bad in results if is_bad), None)


def summed(file: IO[bytes]) -> tuple[int, int]:
    """Return the length and the checksum of what can be read from a file."""
    crc32 = _crc32()
    length = crc = 0
    while chunk := file.read(_READ):
        length, crc = length + len(chunk), crc32(chunk, crc)
    return length, crc


def fast_crc32() -> Callable[[Any, int], int] | None:
    """Return isal's checksum, which is zlib's at ten times the speed, if it is installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    crc32: Callable[[Any, int], int] = isal_zlib.crc32
    return crc32


def _crc32() -> Callable[[Any, int], int]:
    return fast_crc32() or zlib.crc32


def _is_damaged(
    parts: ZipFile, descriptor: int, sums: Sums, crc32: Callable[[Any, int], int], part: ZipInfo
) -> bool:
    if part.compress_type == ZIP_STORED:
        place = _place_of(part, descriptor)
        if place is None:
            return True
        known = sums.get(place)
        return (known or _sum_of(part, place, descriptor, crc32)) != (part.file_size, part.CRC)
    try:
        with parts.open(part) as content:  # which compares the sum itself
            while content.read(_CHUNK):
                pass
    except BadZipFile:
        return True
    return False


def _place_of(part: ZipInfo, descriptor: int) -> int | None:
    """Return where a part's data begin, or None if what stands before them is not its header."""
    header = os.pread(descriptor, _HEADER_SIZE, part.header_offset)
    if len(header) < _HEADER_SIZE or not header.startswith(HEADER):
        return None
    name_length, extra_length = struct.unpack_from("<HH", header, _HEADER_SIZE - 4)
    name = os.pread(descriptor, name_length, part.header_offset + _HEADER_SIZE)
    is_utf8 = part.flag_bits & 0x800
    if name.decode("utf-8" if is_utf8 else "cp437", "replace") != part.orig_filename:
        return None
    place: int = part.header_offset + _HEADER_SIZE + name_length + extra_length
    return place


def _sum_of(
    part: ZipInfo, place: int, descriptor: int, crc32: Callable[[Any, int], int]
) -> tuple[int, int]:
    """Return the length and the checksum of a part that is stored as it is.

    One small buffer is used again and again, which stays in the processor's cache: zipfile makes
    new bytes of each stretch and copies them twice.
    """
    length, crc, buffer = 0, 0, memoryview(bytearray(_CHUNK))
    while length < part.file_size:
        count = os.preadv(descriptor, [buffer[: part.file_size - length]], place + length)
        if not count:
            break
        crc = crc32(buffer[:count], crc)
        length += count
    return length, crc
