"""The seal of a checkpoint file: its size, checksums and a summary, stored at the end of the file.

The seal is the comment of the zip file that `torch.save` writes, which torch and other tools
ignore. A zip file stores a checksum of each part's data, but none of the directory that says where
the parts are. The seal adds that, so that together they cover every byte that is read.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

from trainer_hooks._files import file_fault
from trainer_hooks._system import read_at, sync_file, sync_folder
from trainer_hooks.checkpoint.atomic_write import SEAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Checksums = Mapping[int, tuple[int, int]]
    """The length and the CRC-32 of stretches of a file, by their offsets."""


TAIL = 2048
"""Bytes from the end of a file that contain its seal: remote files are read from there."""

HEADER = b"PK\x03\x04"
"""The signature of a zip part, and so of a zip file."""

RUN = "run.pt"
_MAGIC = b"trainer_hooks:"
_END = b"PK\x05\x06"
_END_SIZE = 22
_BEYOND = 0xFFFFFFFF
"""Offset of the directory in the end record, if it is too large for that: over 4 GB."""
_CRC_DIGITS = 8
_HEADER_SIZE = 30
# small enough that the checksum finds the bytes in the CPU cache after they were read
_CHUNK = 1 << 18
_READ = 1 << 20
_MOST_THREADS = 4


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The facts that tell a training from others with the same origin, as files hold them.

    Attributes:
        run: a random name, which resumes keep; empty in files of older versions and other tools.
        seed: the seed that the user had given to torch when the fit was called; empty without one.
        data: a digest of the data that its loaders hold in memory; empty if they hold none.
        ordinal: its number among the trainings of its process with the same folders, origin, seed
            and data, counted from 0.
        position: its number among those with the same folders, counted from 0.
    """

    run: str = ""
    seed: str = ""
    data: str = ""
    ordinal: int = 0
    position: int = 0

    @classmethod
    def of(cls, facts: object) -> RunIdentity:
        """Return the identity in a seal; an empty one if the seal has none."""
        if not isinstance(facts, dict):
            return cls()
        # a newer version may have written more
        return cls(**{name: facts[name] for name in cls.__slots__ if name in facts})


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """The facts about a checkpoint that can be read without loading it.

    Attributes:
        saved_at: when it was saved, in nanoseconds since 1970; strictly increasing in one training.
        module: the name of the module's class; empty if unknown.
        is_resumable: whether it holds more than weights.
        epoch: epochs completed.
        batches: training batches completed.
        step: optimizer steps completed.
        origin: a digest that the run shares with its restarts, and not with other runs; empty if
            unknown.
        process: the identity of the process that saved it; empty if unknown.
        identity: the facts that tell the run from others of the same origin.
        command: the beginning of the run's command line, for messages; empty if unknown.
    """

    saved_at: int
    module: str = ""
    is_resumable: bool = False
    epoch: int = 0
    batches: int = 0
    step: int = 0
    origin: str = ""
    process: str = ""
    identity: RunIdentity = RunIdentity()
    command: str = ""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> CheckpointSummary:
        """Return the summary in the facts of a seal."""
        # a newer version may have written more
        present = {name: facts[name] for name in cls.__slots__ if name in facts}
        return cls(**{**present, "identity": RunIdentity.of(facts.get("identity"))})

    @classmethod
    def of(
        cls,
        checkpoint: Mapping[str, Any],
        saved_at: int,
        module: str = "",
        origin: str = "",
        process: str = "",
        command: str = "",
        identity: RunIdentity = RunIdentity(),
    ) -> CheckpointSummary:
        """Return the summary of a checkpoint, of another tool's as far as its keys are known."""
        entries = checkpoint.get("trainer_hooks")
        progress = entries.get("progress") if isinstance(entries, dict) else None
        # another tool may have stored anything under these keys
        epoch, batches, step = (
            count if isinstance(count, int) else 0
            for count in (
                checkpoint.get("epoch"),
                progress.get("batches_completed") if isinstance(progress, dict) else 0,
                checkpoint.get("global_step"),
            )
        )
        is_resumable = "optimizer_states" in checkpoint
        return cls(
            saved_at, module, is_resumable, epoch, batches, step, origin, process, identity, command
        )


def write_seal(file: IO[bytes], summary: CheckpointSummary) -> None:
    """Write the seal at the end of a zip file.

    Args:
        file: the file, open for reading and writing.
        summary: the facts about the checkpoint.

    Raises:
        ValueError: the file is no zip file, or has a comment already.
    """
    end = file.seek(0, io.SEEK_END)
    file.seek(max(0, end - _END_SIZE))
    end_record = file.read()
    # torch.save writes no comment, so its file ends with the fixed-size end record
    if not end_record.startswith(_END):
        raise ValueError("the zip file does not end with its directory")
    (directory,) = struct.unpack_from("<16xI", end_record)
    if directory == _BEYOND:
        with ZipFile(file) as parts:
            directory = parts.start_dir  # undocumented: the offset of the zip directory
    file.seek(directory)
    listing = file.read()
    text = json.dumps({"size": end, "directory": directory, **asdict(summary)}).encode()
    length = struct.pack("<H", len(_MAGIC) + _CRC_DIGITS + len(text))
    # the checksum covers the comment's length as well, as it will be in the file
    listing = listing[:-2] + length
    # over the last two bytes of the end record, the length of a comment that is empty so far
    file.seek(end - 2)
    file.write(length + _MAGIC + _checksum(listing, text) + text)


def read_summary(tail: bytes) -> CheckpointSummary | None:
    """Return the summary in a seal, or None without a seal. Nothing is verified.

    Args:
        tail: the last `TAIL` bytes of a file, or all of a shorter one.

    Raises:
        ValueError: there is a seal, and it cannot be read.
    """
    comment = _read_comment(tail)
    if comment is None:
        return None
    facts = comment.facts
    try:
        return CheckpointSummary.read(facts)
    except TypeError as error:
        raise ValueError(f"its seal cannot be read: {error}") from error


def verify_seal(file: IO[bytes], sums: Checksums | None = None) -> None:
    """Compare a file with its seal, if it has one, and each zip part with its stored checksum.

    torch does not verify them: a bit that flipped on the disk would become another weight. A file
    that is no zip file passes, and torch refuses it.

    Args:
        file: the open file.
        sums: the checksums of stretches that were computed while the file was read.

    Raises:
        ValueError: the file is not as it was written; the message names the difference.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - TAIL))
    comment = _read_comment(file.read(TAIL))
    if comment is not None:
        facts, written = comment.facts, comment.facts["size"] + comment.length
        # the size first: a file that was cut is found without reading it
        if written != size:
            raise ValueError(f"it has {size} bytes, and {written} were written")
        file.seek(facts["directory"])
        listing = file.read(facts["size"] - facts["directory"])
        if _checksum(listing, comment.text) != comment.crc:
            raise ValueError("its directory has another checksum")
    try:
        if is_zipfile(file):  # a file of another format is left to torch to refuse
            with ZipFile(file) as parts:
                damaged = damaged_part(parts, file.fileno(), sums or {})
            if damaged is not None:
                raise ValueError(f"{damaged} has another checksum")
        elif file.seek(0) == 0 and file.read(len(HEADER)) == HEADER:
            raise ValueError("its end is missing, or it is no checkpoint")
    # zipfile's for damaged headers: an encrypted part is a RuntimeError, an unknown compression a
    # NotImplementedError
    except (BadZipFile, EOFError, RuntimeError, NotImplementedError, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error


class _SealComment(NamedTuple):
    """The comment of a zip file that is a seal: its text and facts, its checksum and its length."""

    text: bytes
    facts: dict[str, Any]
    crc: bytes
    length: int


def _read_comment(tail: bytes) -> _SealComment | None:
    """Return the seal at the end of a file, or None without a seal."""
    # not zipfile: it needs the whole file, and of a remote one only the tail was downloaded
    # the last one: tensors may hold the same bytes. The zeros are its disk numbers
    start = tail.rfind(_END + b"\x00\x00\x00\x00")
    comment = tail[start + _END_SIZE :] if start >= 0 else b""
    if not comment.startswith(_MAGIC):
        return None
    crc, text = comment[len(_MAGIC) :][:_CRC_DIGITS], comment[len(_MAGIC) + _CRC_DIGITS :]
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("its end is missing or damaged") from error
    # a truncated or edited comment may still be JSON
    if not isinstance(facts, dict) or not all(
        isinstance(facts.get(name), int) and facts[name] >= 0
        for name in ("size", "directory", "saved_at")
    ):
        raise ValueError("its seal is damaged")
    return _SealComment(text, facts, crc, len(comment))


def _checksum(listing: bytes, text: bytes) -> bytes:
    return f"{zlib.crc32(text, zlib.crc32(listing)):0{_CRC_DIGITS}x}".encode()


def seal_folder(
    folder: Path, sums: Mapping[str, tuple[int, int]], summary: CheckpointSummary
) -> None:
    """Write and sync the seal of a folder whose files are all durable."""
    # a checksum of the seal itself, since nothing else covers it
    text = json.dumps({**asdict(summary), "files": {k: list(v) for k, v in sums.items()}})
    with (folder / SEAL).open("w", encoding="utf-8") as file:
        file.write(f"{text}\n{zlib.crc32(text.encode()):08x}\n")
        file.flush()
        sync_file(file.fileno())
    sync_folder(folder)


def check_folder(folder: Path) -> None:
    """Compare all files of a folder with its seal.

    Raises:
        ValueError: a file is not as it was written; the message names the difference.
        OSError: a file cannot be read.
    """
    require_regular_files(folder)
    files = _read_folder_seal(folder)["files"]
    for name, written in files.items():
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        size = (folder / name).stat().st_size
        if size != written[0]:  # a truncated file is found without reading it
            raise ValueError(f"{name} has {size} bytes, and {written[0]} were written")
        # a list, as JSON made one of the tuple
        if list(file_checksum(folder / name)) != written:
            raise ValueError(f"{name} has another checksum")


def folder_summary(folder: Path) -> CheckpointSummary:
    """Return the summary in the seal of a folder. Nothing is verified.

    Raises:
        ValueError: the seal cannot be read.
    """
    return CheckpointSummary.read(_read_folder_seal(folder))


def _read_folder_seal(folder: Path) -> dict[str, Any]:
    # "replace": a damaged byte must fail the checksum, not the decoding
    text, _, crc = (folder / SEAL).read_text(encoding="utf-8", errors="replace").partition("\n")
    if crc.strip() != f"{zlib.crc32(text.encode()):08x}":
        raise ValueError("its seal is damaged")
    try:
        facts: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("its seal is damaged") from error
    # the checksum is no secret: another program may have written any seal with a right one
    files = facts.get("files") if isinstance(facts, dict) else None
    if (
        not isinstance(files, dict)
        or not isinstance(facts.get("saved_at"), int)
        or not all(_is_listed(name, sums) for name, sums in files.items())
    ):
        raise ValueError("its seal is damaged")
    return facts


def _is_listed(name: str, sums: object) -> bool:
    """Return whether a seal may list a file: one of its folder, with a length and a CRC-32."""
    is_pair = isinstance(sums, list) and len(sums) == 2 and all(isinstance(n, int) for n in sums)
    return is_pair and name == Path(name).name


def require_regular_files(folder: Path) -> None:
    """Raise unless all that a folder holds can be opened: reading a pipe would block.

    Raises:
        ValueError: there is something else.
        OSError: the folder cannot be read.
    """
    for entry in folder.iterdir():
        if fault := file_fault(entry):
            raise ValueError(f"{entry.name}: {fault}")


def file_checksum(file: Path) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file."""
    with file.open("rb") as content:
        return checksum(content)


def checksum(file: IO[bytes]) -> tuple[int, int]:
    """Return the length and the CRC-32 of all that can be read from a file."""
    crc32 = fast_crc32() or zlib.crc32
    length = crc = 0
    while chunk := file.read(_READ):
        length, crc = length + len(chunk), crc32(chunk, crc)
    return length, crc


def fast_crc32() -> Callable[[Any, int], int] | None:
    """Return isal's CRC-32, ten times as fast as zlib's, or None if it is not installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    crc32: Callable[[Any, int], int] = isal_zlib.crc32
    return crc32


def damaged_part(parts: ZipFile, descriptor: int, sums: Checksums) -> str | None:
    """Return the name of a zip part that differs from its checksum, or None.

    Without checksums from the read, several threads share the work: computing a checksum takes
    longer than reading the bytes.

    Args:
        parts: the zip file.
        descriptor: the same file, open.
        sums: the checksums of stretches that were read already; of a part that is one of them,
            only the header is read again.
    """
    listed = parts.infolist()
    is_damaged = partial(_is_damaged, parts, descriptor, sums, fast_crc32() or zlib.crc32)
    if sums:  # the bytes were read and summed up already, so threads would not pay
        return next((part.filename for part in listed if is_damaged(part)), None)
    # threads do run side by side here: reading and summing up both release Python's lock
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        results = zip(listed, pool.map(is_damaged, listed), strict=True)
        return next((part.filename for part, is_bad in results if is_bad), None)


def _is_damaged(
    parts: ZipFile,
    descriptor: int,
    sums: Checksums,
    crc32: Callable[[Any, int], int],
    part: ZipInfo,
) -> bool:
    if part.compress_type == ZIP_STORED:
        place = _place_of(part, descriptor)
        if place is None:
            return True
        length_and_crc = sums.get(place)
        # a read of another length at this offset: an empty part's offset is that of the next header
        if length_and_crc is None or length_and_crc[0] != part.file_size:
            length_and_crc = _sum_of(part, place, descriptor, crc32)
        return length_and_crc != (part.file_size, part.CRC)
    try:
        with parts.open(part) as content:  # reading to the end compares the checksum
            while content.read(_CHUNK):
                pass
    except BadZipFile:
        return True
    return False


def _read(descriptor: int, count: int, place: int) -> bytes:
    target = bytearray(count)
    return bytes(target[: read_at(descriptor, memoryview(target), place)])


def _place_of(part: ZipInfo, descriptor: int) -> int | None:
    """Return the offset of a part's data, or None if no matching header stands before it."""
    header = _read(descriptor, _HEADER_SIZE, part.header_offset)
    if len(header) < _HEADER_SIZE or not header.startswith(HEADER):
        return None
    # from this header: torch pads it to align the data, and the directory has no padding
    name_length, extra_length = struct.unpack_from("<HH", header, _HEADER_SIZE - 4)
    name = _read(descriptor, name_length, part.header_offset + _HEADER_SIZE)
    is_utf8 = part.flag_bits & 0x800  # the zip format's flag; without it names are in code page 437
    if name.decode("utf-8" if is_utf8 else "cp437", "replace") != part.orig_filename:
        return None
    place: int = part.header_offset + _HEADER_SIZE + name_length + extra_length
    return place


def _sum_of(
    part: ZipInfo, place: int, descriptor: int, crc32: Callable[[Any, int], int]
) -> tuple[int, int]:
    """Return the length and the CRC-32 of a part that is stored uncompressed."""
    length, crc, buffer = 0, 0, memoryview(bytearray(_CHUNK))
    while length < part.file_size:
        count = read_at(descriptor, buffer[: part.file_size - length], place + length)
        if not count:
            break
        crc = crc32(buffer[:count], crc)
        length += count
    return length, crc


class ChecksummedReader(io.RawIOBase):
    """A raw file that computes checksums while it is read, when the bytes are in the CPU cache.

    Attributes:
        sums: the length and checksum of each stretch that was read, by its offset.
    """

    def __init__(self, file: IO[bytes], crc32: Callable[[Any, int], int]) -> None:
        super().__init__()
        self.sums: dict[int, tuple[int, int]] = {}
        self._descriptor = file.fileno()
        self._crc32 = crc32
        self._place = 0

    def readable(self) -> bool:
        """Return True: the file is open for reading."""
        return True

    def seekable(self) -> bool:
        """Return True: reads may begin at any offset."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the offset of the next read, and return it; `tell` of the base class calls this."""
        # None for SEEK_END, for which alone the system is asked for the size
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place}.get(whence)
        self._place = offset + (os.fstat(self._descriptor).st_size if base is None else base)
        return self._place

    def readinto(self, target: Any) -> int:
        """Fill `target` from the current offset, store the checksum, and return the bytes read."""
        place, crc = self._place, 0
        with memoryview(target).cast("B") as whole:
            # until all is read, as a buffered file does, although a raw one may return less
            while self._place - place < len(whole):
                done = self._place - place
                with whole[done : done + _CHUNK] as chunk:
                    count = read_at(self._descriptor, chunk, self._place)
                    crc = self._crc32(chunk[:count], crc)
                if not count:
                    break
                self._place += count
        length = self._place - place
        self.sums[place] = (length, crc)
        return length


_Loaded = TypeVar("_Loaded")


def load_verified(
    file: IO[bytes],
    verify: Callable[[Checksums], object],
    load: Callable[[IO[bytes]], _Loaded],
) -> _Loaded:
    """Return the result of `load`, once `verify` has passed, at about the cost of one of the two.

    No result is returned before the file is verified. If both fail, the error of `verify` is
    raised, because it names the cause.

    Args:
        file: the open file.
        verify: compares the file with its seal; gets the checksums that are known already.
        load: reads the open file that it gets.
    """
    crc32 = fast_crc32()
    is_zip = file.read(len(HEADER)) == HEADER  # the same test as torch's
    file.seek(0)
    if crc32 is None or not is_zip:
        return _load_beside(lambda: verify({}), lambda: load(file))
    summed = ChecksummedReader(file, crc32)
    try:
        loaded = load(summed)  # type: ignore[arg-type]  # a raw file, of which only reading is used
    except Exception:
        verify({})  # its error says more, if the file is damaged
        raise
    verify(summed.sums)
    return loaded


def _load_beside(verify: Callable[[], object], load: Callable[[], _Loaded]) -> _Loaded:
    # two threads: zlib's checksum is slow, and releases Python's lock while it is computed
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint verifier") as pool:
        verified = pool.submit(verify)
        try:
            loaded = load()
        except Exception:
            _raise_error_of(verified)  # its error says more, if the file is damaged
            raise
        _raise_error_of(verified)
        return loaded


def _raise_error_of(verified: Future[object]) -> None:
    """Raise the error of a verification, without the frames of its thread in the traceback."""
    if (error := verified.exception()) is not None:
        raise error.with_traceback(None)
