"""Open a file to look into it: whatever it holds, without its tensors' data, and without any code.

What is read here is shown, compared and exported by the command line. To go on with a training,
`read_checkpoint` is the way, which reads and checks all of a file.
"""

from __future__ import annotations

import os
import pickle
import re
import warnings
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from trainer_hooks.checkpoint.decoding import decode
from trainer_hooks.checkpoint.file import verify_checkpoint
from trainer_hooks.checkpoint.folder import RUN, is_folder, size_of_folder
from trainer_hooks.checkpoint.migrations import FORMAT, migrate
from trainer_hooks.checkpoint.safetensors_file import is_safetensors, read_safetensors
from trainer_hooks.errors import CheckpointError

__all__ = ["Contents", "Fault", "Kind", "UnusableFileError", "inspect_file", "verify_file"]

_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_CODE_PATTERNS = (
    r"GLOBAL (\S+)",
    r"unrecognized function (.+)",
    r"unsupported class (.+)",
    r"(TorchScript) archives",
)


class Kind(StrEnum):
    """What a file is."""

    OURS = "checkpoint of trainer_hooks"
    LIGHTNING = "checkpoint of Lightning"
    OTHER = "checkpoint of another tool"
    WEIGHTS = "bare weights"
    SAFETENSORS = "weights as safetensors"


class Fault(StrEnum):
    """Why a file cannot be used."""

    MISSING = "missing"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    NEEDS_CODE = "needs code"
    NO_CHECKPOINT = "no checkpoint"
    TOO_NEW = "too new"


class UnusableFileError(CheckpointError):
    """Raised for a file that cannot be looked into.

    Attributes:
        fault: why, as a kind.
        reason: why, in words, without the file's name.
    """

    def __init__(self, path: str | os.PathLike[str], fault: Fault, reason: str) -> None:
        super().__init__(f"{os.fspath(path)!r}: {fault}: {reason}")
        self.fault = fault
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds.

    Attributes:
        path: the file.
        kind: what it is.
        size: its bytes.
        data: a checkpoint's dict; of bare weights one with the key `"state_dict"` alone. The
            tensors' data are read from the disk when they are used.
    """

    path: str
    kind: Kind
    size: int
    data: dict[str, Any]

    @property
    def weights(self) -> dict[str, Any]:
        """The weights by their names."""
        return mapping(self.data["state_dict"])

    @property
    def own(self) -> dict[str, Any]:
        """What only trainer_hooks writes; empty in files of others."""
        return mapping(self.data.get("trainer_hooks"))

    @property
    def progress(self) -> dict[str, Any]:
        """The counters of a training; empty in files of others and with weights alone."""
        if self.kind is not Kind.OURS:
            return {}
        saved = self.own.get("progress", mapping(self.data.get("loops")).get("fit_loop"))
        return mapping(saved)

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks' states by their keys."""
        return mapping(self.data.get("callbacks"))

    @property
    def format(self) -> int:
        """The number of the layout; 0 in files of others and where it is no number."""
        number = self.own.get("format")
        return number if isinstance(number, int) else 0

    @property
    def is_resumable(self) -> bool:
        """Whether a training of trainer_hooks can go on from it."""
        return self.kind is Kind.OURS and "optimizer_states" in self.data and "rng" in self.own

    def with_tensors(self) -> Contents:
        """Return the same with the tensors' values, which of a folder are not read before.

        Raises:
            CheckpointError: they cannot be read.
        """
        if not is_folder(self.path):
            return self
        from trainer_hooks.checkpoint.folder_reading import with_tensors

        return replace(self, data=with_tensors(self.data, self.path))

    def as_saved(self) -> Contents:
        """Return the same in the present format, with its values as they were before that.

        Raises:
            CheckpointError: a value cannot be put together again.
        """
        if self.kind is not Kind.OURS or not 1 <= self.format <= FORMAT:
            return self
        present = migrate(self.data, self.path)
        return replace(self, data={key: decode(value, self.path) for key, value in present.items()})


def mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is a dict, and an empty one for what a strange file has in its place."""
    return value if isinstance(value, dict) else {}


def inspect_file(path: str | os.PathLike[str]) -> Contents:
    """Open a checkpoint of any tool, bare weights, or a safetensors file.

    It says nothing of whether the tensors' data are whole; `verify_file` does.

    Raises:
        UnusableFileError: it is missing, damaged, none of those, or would need code to be run.
    """
    file = Path(path)
    if is_folder(file):
        return _inspect_folder(file)
    head = _head(file)
    size = file.stat().st_size
    if is_safetensors(file):
        return Contents(str(path), Kind.SAFETENSORS, size, _safetensors(file))
    data = _loaded(file, head)
    kind = _kind(data)
    if kind is None:
        held = type(data).__qualname__
        if isinstance(data, dict):
            held += f" with the keys {sorted(map(str, data))[:8]}"
        raise UnusableFileError(
            path, Fault.NO_CHECKPOINT, f"it holds a {held}, and neither 'state_dict' nor weights"
        )
    return Contents(str(path), kind, size, {"state_dict": data} if kind is Kind.WEIGHTS else data)


def verify_file(path: str | os.PathLike[str], newest_format: int) -> Contents:
    """Read all of a file, compare it with its checksums, and return what it holds.

    Args:
        path: the file.
        newest_format: the newest layout that this version knows.

    Raises:
        UnusableFileError: it cannot be used; the reason is told.
    """
    file = Path(path)
    if not is_folder(file):
        _head(file)
    try:
        verify_checkpoint(file)
    except CheckpointError as error:
        reason = str(error).partition(" is damaged: ")[2].partition(". Resume")[0] or str(error)
        raise UnusableFileError(path, Fault.DAMAGED, reason) from error
    contents = inspect_file(path)
    if contents.kind is Kind.OURS:
        if contents.format < 1:
            raise UnusableFileError(path, Fault.DAMAGED, "it says nothing of its format")
        if contents.format > newest_format:
            raise UnusableFileError(
                path,
                Fault.TOO_NEW,
                f"it has format {contents.format}, saved by trainer_hooks "
                f"{contents.own.get('version')}; this version knows formats up to {newest_format}",
            )
    return contents


def _inspect_folder(folder: Path) -> Contents:
    from trainer_hooks.checkpoint.folder_reading import with_empty_tensors

    file = folder / RUN
    data = _loaded(file, _head(file))
    if _kind(data) is not Kind.OURS:
        raise UnusableFileError(folder, Fault.DAMAGED, f"{RUN} is no checkpoint")
    try:
        data = with_empty_tensors(data, folder)
    except CheckpointError as error:
        raise UnusableFileError(folder, Fault.DAMAGED, str(error)) from error
    return Contents(str(folder), Kind.OURS, size_of_folder(folder), data)


def _head(file: Path) -> bytes:
    """Return the first bytes of a file, and tell what is wrong if there are none to read."""
    if file.is_dir():
        raise UnusableFileError(file, Fault.NO_CHECKPOINT, "it is a folder without a seal")
    if file.exists() and not file.is_file():  # a pipe would keep us waiting
        raise UnusableFileError(file, Fault.NO_CHECKPOINT, "it is no regular file")
    try:
        with file.open("rb") as content:
            head = content.read(8)
    except FileNotFoundError:
        raise UnusableFileError(file, Fault.MISSING, _not_there(file)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnusableFileError(file, Fault.UNREADABLE, reason) from error
    if not head:
        raise UnusableFileError(file, Fault.DAMAGED, "it is empty")
    return head


def _not_there(file: Path) -> str:
    """Tell that a file is missing, and what lies beside it."""
    try:
        verify_checkpoint(file)
    except CheckpointError as error:
        return str(error).partition("' is ")[2] or str(error)
    return "it was not there a moment ago"


def _loaded(file: Path, head: bytes) -> Any:
    """Load a file without running code; where it is a zip file, without the tensors' data."""
    is_zip = is_zipfile(file)
    if head.startswith(_ZIP) and not is_zip:
        raise UnusableFileError(file, Fault.DAMAGED, "its end is missing")
    try:
        with warnings.catch_warnings(action="ignore"):  # of what is refused just below
            return torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    except MemoryError:
        raise
    except Exception as error:  # whatever a strange file makes torch stumble over
        fault, reason = _fault(error, head)
        raise UnusableFileError(file, fault, reason) from error


def _fault(error: Exception, head: bytes) -> tuple[Fault, str]:
    """Return what torch's error says of a file."""
    text = str(error)
    found = next(filter(None, (re.search(pattern, text) for pattern in _CODE_PATTERNS)), None)
    if found is not None:
        named = found[1].rstrip(".")
        return Fault.NEEDS_CODE, f"only code could rebuild what it holds ({named}), and none is run"
    if isinstance(error, pickle.UnpicklingError) and head.startswith((_ZIP, _PICKLE)):
        return Fault.NEEDS_CODE, "it is pickled in a way that torch does not open without code"
    if not head.startswith((_ZIP, _PICKLE)) or "hasRecord" in text or "subdirectory" in text:
        return Fault.NO_CHECKPOINT, "it was not written by torch.save"
    lines = text.splitlines()
    return Fault.DAMAGED, f"{type(error).__name__}: {lines[0] if lines else 'no data'}"


def _kind(data: Any) -> Kind | None:
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("state_dict"), dict):
        if isinstance(data.get("trainer_hooks"), dict):
            return Kind.OURS
        return Kind.LIGHTNING if "pytorch-lightning_version" in data else Kind.OTHER
    values = [value for name, value in data.items() if not str(name).endswith("_extra_state")]
    is_weights = bool(values) and all(isinstance(value, Tensor) for value in values)
    return Kind.WEIGHTS if is_weights else None


def _safetensors(file: Path) -> dict[str, Any]:
    try:
        return read_safetensors(file)
    except CheckpointError as error:
        is_damaged = not isinstance(error.__cause__, ImportError)
        fault = Fault.DAMAGED if is_damaged else Fault.UNREADABLE
        raise UnusableFileError(
            file, fault, str(error.__cause__ if is_damaged else error)
        ) from error
