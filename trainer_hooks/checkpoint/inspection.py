"""Inspection: open a checkpoint of any tool without its tensors' data, and without running code.

The command line shows, compares and exports what is read here. To resume a training use
`load_checkpoint`, which reads and verifies the whole file.
"""

from __future__ import annotations

import os
import pickle
import re
import warnings
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from trainer_hooks._files import is_missing
from trainer_hooks._text import count_with_noun
from trainer_hooks.checkpoint.atomic_write import is_sharded_folder, size_of_folder
from trainer_hooks.checkpoint.encoding import decode
from trainer_hooks.checkpoint.file import (
    TORCH_FORMATS,
    absence_of,
    in_present_format,
    verify_checkpoint,
)
from trainer_hooks.checkpoint.lightning import lightning_progress
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.checkpoint.paths import can_be_mapped
from trainer_hooks.checkpoint.pickled_object import reading_pickles_unopened
from trainer_hooks.checkpoint.safetensors_file import is_safetensors, read_safetensors
from trainer_hooks.checkpoint.seal import RUN, TAIL, read_summary, require_regular_files
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

# torch's messages: the types of its errors do not tell such files from damaged ones
_CODE_PATTERNS = (
    r"GLOBAL (\S+)",
    r"unrecognized function (.+)",
    r"unsupported class (.+)",
    r"(TorchScript) archives",
)


class CheckpointKind(StrEnum):
    """Who wrote a file, and whether it holds a checkpoint or weights alone."""

    OURS = "checkpoint of trainer_hooks"
    LIGHTNING = "checkpoint of Lightning"
    OTHER = "checkpoint of another tool"
    WEIGHTS = "bare weights"
    SAFETENSORS = "weights as safetensors"


class FileFault(StrEnum):
    """The reasons for which a file cannot be used."""

    MISSING = "missing"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    NEEDS_CODE = "needs code"
    NO_CHECKPOINT = "no checkpoint"
    TOO_NEW = "too new"


class UnusableFileError(CheckpointError):
    """Raised for a file that cannot be inspected.

    Attributes:
        fault: the kind of fault.
        reason: the fault in words, without the file's name.
    """

    def __init__(self, path: str | os.PathLike[str], fault: FileFault, reason: str) -> None:
        super().__init__(f"{os.fspath(path)!r}: {fault}: {reason}")
        self.fault = fault
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """The contents of a file.

    Attributes:
        path: the file.
        kind: who wrote it.
        size: its size in bytes.
        data: a checkpoint's dict; for bare weights a dict with the key `"state_dict"` alone. The
            data of tensors is read from the disk when it is used.
    """

    path: str
    kind: CheckpointKind
    size: int
    data: dict[str, Any]

    @property
    def weights(self) -> dict[str, Any]:
        """The weights by their names."""
        return as_mapping(self.data["state_dict"])

    @property
    def trainer_hooks(self) -> dict[str, Any]:
        """The part that only trainer_hooks writes; empty in files of others."""
        return as_mapping(self.data.get("trainer_hooks"))

    @property
    def progress(self) -> dict[str, Any]:
        """The counters of a training; empty in files of others and in files of weights alone."""
        if self.kind is not CheckpointKind.OURS:
            return {}
        return as_mapping(self.trainer_hooks.get("progress"))

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks' states by their state keys."""
        return as_mapping(self.data.get("callbacks"))

    @property
    def format(self) -> int:
        """The number of the file format; 0 in files of others and where there is no number."""
        number = self.trainer_hooks.get("format")
        return number if isinstance(number, int) else 0

    @property
    def is_resumable(self) -> bool:
        """Whether trainer_hooks can resume a training from it."""
        return (
            self.kind is CheckpointKind.OURS
            and "optimizer_states" in self.data
            and "rng" in self.trainer_hooks
        )

    def with_tensors(self) -> CheckpointContents:
        """Return the contents with the tensors of a sharded folder read; those of a file are there.

        Raises:
            CheckpointError: they cannot be read.
        """
        if not is_sharded_folder(self.path):
            return self
        from trainer_hooks.checkpoint.sharded_folder import with_tensors

        return replace(self, data=with_tensors(self.data, self.path))

    def as_saved(self) -> CheckpointContents:
        """Return the contents with all values decoded.

        Raises:
            CheckpointError: a value cannot be decoded.
        """
        if self.kind is not CheckpointKind.OURS or self.format != FORMAT:
            return self
        data = {key: decode(value, self.path) for key, value in self.data.items()}
        return replace(self, data=data)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is a dict, and otherwise an empty dict, as for a malformed file."""
    return value if isinstance(value, dict) else {}


def inspect_file(path: str | os.PathLike[str]) -> CheckpointContents:
    """Open a checkpoint of any tool, bare weights, or a safetensors file.

    The data of tensors is not verified; `verify_file` does that.

    Raises:
        UnusableFileError: it is missing, damaged, none of those, or would need code to be run.
    """
    file = Path(path)
    if is_sharded_folder(file):
        return _inspect_folder(file)
    head = _head(file)
    size = file.stat().st_size  # after _head, which names the fault of a missing file
    if is_safetensors(file):
        return CheckpointContents(str(path), CheckpointKind.SAFETENSORS, size, _safetensors(file))
    data = _loaded(file, head)
    kind = _kind(data)
    if kind is None:
        held = type(data).__qualname__
        if isinstance(data, dict):
            held += f" with the keys {sorted(map(str, data))[:8]}"
        raise UnusableFileError(
            path,
            FileFault.NO_CHECKPOINT,
            f"it holds a {held}, and neither 'state_dict' nor weights",
        )
    return CheckpointContents(
        str(path), kind, size, {"state_dict": data} if kind is CheckpointKind.WEIGHTS else data
    )


def verify_file(path: str | os.PathLike[str], newest_format: int) -> CheckpointContents:
    """Read all of a file, compare it with its checksums, and return its contents.

    Args:
        path: the file.
        newest_format: the newest file format that this version knows.

    Raises:
        UnusableFileError: it cannot be used; the error gives the reason.
    """
    file = Path(path)
    if not is_sharded_folder(file):
        _head(file)
    try:
        verify_checkpoint(file)
    except CheckpointError as error:
        # out of the message that `_damaged` in checkpoint/file.py makes, which names the file again
        reason = str(error).partition(" is damaged: ")[2].partition(". Resume")[0] or str(error)
        raise UnusableFileError(path, FileFault.DAMAGED, reason) from error
    contents = inspect_file(path)
    if contents.kind is CheckpointKind.OURS:
        if contents.format < 1:
            raise UnusableFileError(path, FileFault.DAMAGED, "it says nothing of its format")
        if contents.format > newest_format:
            version = contents.trainer_hooks.get("version")
            raise UnusableFileError(
                path,
                FileFault.TOO_NEW,
                f"it has format {contents.format}, saved by trainer_hooks {version}; this version "
                f"knows formats up to {newest_format}",
            )
        try:
            in_present_format(contents.data, str(path), warns=False)
        except CheckpointError as error:
            reason = str(error).removeprefix(f"checkpoint {str(path)!r} ")
            raise UnusableFileError(path, FileFault.DAMAGED, reason) from error
    return contents


def _inspect_folder(folder: Path) -> CheckpointContents:
    from trainer_hooks.checkpoint.sharded_folder import with_empty_tensors

    try:
        require_regular_files(folder)
    except (OSError, ValueError) as error:
        raise UnusableFileError(folder, FileFault.DAMAGED, str(error)) from error
    file = folder / RUN
    data = _loaded(file, _head(file))
    if _kind(data) is not CheckpointKind.OURS:
        raise UnusableFileError(folder, FileFault.DAMAGED, f"{RUN} is no checkpoint")
    try:
        data = with_empty_tensors(data, folder)
    except CheckpointError as error:
        raise UnusableFileError(folder, FileFault.DAMAGED, str(error)) from error
    return CheckpointContents(str(folder), CheckpointKind.OURS, size_of_folder(folder), data)


def _head(file: Path) -> bytes:
    """Return the first bytes of a file, or raise if there are none to read."""
    if absence := absence_of(file):
        # exists is False for a path that the system refuses to look at
        kind = FileFault.NO_CHECKPOINT if os.path.exists(file) else FileFault.UNREADABLE  # noqa: PTH110
        if is_missing(file):
            kind = FileFault.MISSING
        # the kind of fault has said it; a missing file is followed by those beside it
        reason = absence.removeprefix("is ").removeprefix("cannot be read: ")
        reason += "." if kind is FileFault.MISSING else ""
        raise UnusableFileError(file, kind, reason.removeprefix("not there: "))
    try:
        with file.open("rb") as content:
            head = content.read(8)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnusableFileError(file, FileFault.UNREADABLE, reason) from error
    if not head:
        raise UnusableFileError(file, FileFault.DAMAGED, "it is empty")
    return head


def _loaded(file: Path, head: bytes) -> Any:
    """Load a file without running code; tensors of a zip file are mapped, not read."""
    is_zip = is_zipfile(file)  # torch maps only zip files, not its older format
    if head.startswith(TORCH_FORMATS[0]) and not is_zip:
        raise UnusableFileError(file, FileFault.DAMAGED, "its end is missing")
    try:
        with file.open("rb") as content:
            content.seek(max(0, file.stat().st_size - TAIL))
            read_summary(content.read())  # torch opens a file without its last bytes
    except ValueError as error:
        raise UnusableFileError(file, FileFault.DAMAGED, str(error)) from error
    try:
        # torch warns of files that it then refuses
        with warnings.catch_warnings(action="ignore"), reading_pickles_unopened():
            mmap = is_zip and can_be_mapped(file)
            return torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)
    except MemoryError:
        raise
    except Exception as error:  # torch raises errors of many types for a file of another format
        fault, reason = _fault(error, head)
        raise UnusableFileError(file, fault, reason) from error


def _fault(error: Exception, head: bytes) -> tuple[FileFault, str]:
    """Return the fault and the reason that torch's error stands for."""
    text = str(error)
    match = next(filter(None, (re.search(pattern, text) for pattern in _CODE_PATTERNS)), None)
    if match is not None:
        named = match[1].rstrip(".")
        return (
            FileFault.NEEDS_CODE,
            f"only code could rebuild what it holds ({named}), and none is run",
        )
    if isinstance(error, pickle.UnpicklingError) and head.startswith(TORCH_FORMATS):
        return FileFault.NEEDS_CODE, "it is pickled in a way that torch does not open without code"
    # the two texts are torch's for a zip file that is no archive of its own
    if not head.startswith(TORCH_FORMATS) or "hasRecord" in text or "subdirectory" in text:
        return FileFault.NO_CHECKPOINT, "it was not written by torch.save"
    lines = text.splitlines()
    return FileFault.DAMAGED, f"{type(error).__name__}: {lines[0] if lines else 'no data'}"


def _kind(data: Any) -> CheckpointKind | None:
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("state_dict"), dict):
        # ours first: our files have Lightning's keys as well
        if isinstance(data.get("trainer_hooks"), dict):
            return CheckpointKind.OURS
        return (
            CheckpointKind.LIGHTNING
            if "pytorch-lightning_version" in data
            else CheckpointKind.OTHER
        )
    # modules may put any value under this name into their state_dict
    values = [value for name, value in data.items() if not str(name).endswith("_extra_state")]
    # all() of nothing is True, and an empty dict is no weights
    is_weights = bool(values) and all(isinstance(value, Tensor) for value in values)
    return CheckpointKind.WEIGHTS if is_weights else None


def _safetensors(file: Path) -> dict[str, Any]:
    try:
        return read_safetensors(file)
    except CheckpointError as error:
        is_damaged = not isinstance(error.__cause__, ImportError)
        fault = FileFault.DAMAGED if is_damaged else FileFault.UNREADABLE
        raise UnusableFileError(
            file, fault, str(error.__cause__ if is_damaged else error)
        ) from error


@dataclass(frozen=True, slots=True)
class CheckpointSection:
    """One section of a checkpoint, and its share of the file's size.

    Attributes:
        name: its key; the keys in `trainer_hooks` are sections of their own.
        size: its size in bytes. Data that several sections share count in the first.
    """

    name: str
    size: int


def sections_of(contents: CheckpointContents) -> list[CheckpointSection]:
    """Return the sections of a file in their order, and the size of the file's layout."""
    seen: set[int] = set()
    sections = [
        CheckpointSection(name, _size_of(value, seen))
        for name, value in _named_parts(contents.data)
    ]
    # zip headers, names and pickled structure, and padding; compressed files can make it negative
    beside = contents.size - sum(section.size for section in sections)
    return [*sections, CheckpointSection("(names and layout)", max(0, beside))]


def tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; of a sparse one, of those that are stored."""
    return sum(part.numel() * part.element_size() for part in _stored(tensor))


def dtype_name(tensor: Tensor) -> str:
    """Return a tensor's dtype, such as `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def describe_position(contents: CheckpointContents) -> str:
    """Describe the training position that a checkpoint holds, or why it cannot be resumed."""
    if contents.kind is CheckpointKind.LIGHTNING:
        return _place_of_lightning(contents)
    if contents.kind is not CheckpointKind.OURS:
        return f"no: it is {_ARTICLES[contents.kind]}{contents.kind}"
    if not contents.is_resumable:
        return "no: it holds weights alone"
    progress = contents.progress
    epoch, done = progress.get("epochs_completed", 0), progress.get("batches_in_epoch", 0)
    epoch_stage = progress.get("stage")
    if epoch_stage == EpochStage.BATCHES:
        place = f"inside epoch {epoch}, after {_of(done, contents)}"
    elif epoch_stage == EpochStage.BETWEEN:
        place = f"between two epochs, before epoch {epoch}" if epoch else "before epoch 0"
    else:
        place = (
            f"at the end of epoch {epoch}, {_TO_DO.get(str(epoch_stage), 'in an unknown stage')}"
        )
    return ", ".join(["yes", place, *_details(progress)])


def _place_of_lightning(contents: CheckpointContents) -> str:
    try:
        place = lightning_progress(contents.data, contents.path)
    except CheckpointError:
        return "no: it is a Lightning checkpoint that does not say where its training stood"
    if "optimizer_states" not in contents.data:
        return "no: it is a Lightning checkpoint of weights alone"
    if place.batches_in_epoch:
        return (
            f"yes, inside epoch {place.epochs}, after {place.batches_in_epoch} batches, but not "
            "exactly: Lightning saves neither the loader's position nor random numbers"
        )
    return f"yes, before epoch {place.epochs}"


_TO_DO: dict[str, str] = {
    EpochStage.VALIDATING: "before the validation that may be due",
    EpochStage.CLOSING: "before its end hooks are done",
    EpochStage.ENDED: "after its end hooks",
}


_ARTICLES = {CheckpointKind.OTHER: "a ", CheckpointKind.WEIGHTS: "", CheckpointKind.SAFETENSORS: ""}


def _of(done: Any, contents: CheckpointContents) -> str:
    whole = as_mapping(contents.trainer_hooks.get("stream")).get("num_batches")
    return f"batch {done} of {whole}" if isinstance(whole, int) else f"{done} batches"


def _details(progress: dict[str, Any]) -> Iterator[str]:
    window = progress.get("batches_in_window", 0)
    if window:
        yield f"with the gradients of {count_with_noun(window, 'batch')} accumulated"
    if progress.get("is_batch_open"):
        yield "while the end of that batch was under way"


def _named_parts(data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if name == "trainer_hooks" and isinstance(value, dict):
            yield from ((f"trainer_hooks.{inner}", part) for inner, part in value.items())
        else:
            yield str(name), value


class _Scale(pickle.Pickler):
    """A pickler that measures a value's serialised size and the memory of its tensors."""

    def __init__(self, seen: set[int]) -> None:
        super().__init__(self, protocol=2)  # torch.save's protocol; it writes to this object
        self.size = 0
        self._seen = seen

    def write(self, data: bytes) -> int:
        """Add the size of pickled data, and drop the data."""
        self.size += len(data)
        return len(data)

    def persistent_id(self, value: Any) -> str | None:
        """Keep tensors out of the pickled data, and add the size of their memory."""
        if not isinstance(value, Tensor):
            return None
        for part in _stored(value):
            memory = part.untyped_storage()
            # tensors of a sharded folder are on the meta device, where all addresses are 0
            key = id(part) if part.is_meta else memory.data_ptr()
            if key not in self._seen:
                self._seen.add(key)
                self.size += memory.nbytes()
        # any text but None, for which the pickler would write the tensor's data
        return ""


def _size_of(value: Any, seen: set[int]) -> int:
    scale = _Scale(seen)
    scale.dump(value)
    return scale.size


def _stored(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the dense tensors that a tensor is stored as."""
    if tensor.layout is torch.sparse_coo:
        # torch gives the indices of coalesced tensors alone
        whole = tensor.coalesce()
        return whole.indices(), whole.values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)
