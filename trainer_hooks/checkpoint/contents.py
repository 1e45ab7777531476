"""What a checkpoint holds, told part by part."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.checkpoint.inspection import Kind, mapping
from trainer_hooks.checkpoint.lightning import place_of
from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.checkpoint.inspection import Contents

__all__ = ["Section", "dtype_name", "place_in_words", "sections_of", "tensor_bytes"]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a file.

    Attributes:
        name: its key; what lies in `trainer_hooks` is told one level deeper.
        size: its bytes. Data that several sections share count in the first.
    """

    name: str
    size: int


def sections_of(contents: Contents) -> list[Section]:
    """Return the parts of a file, as they lie in it, and what it needs beside them."""
    seen: set[int] = set()
    sections = [Section(name, _size_of(value, seen)) for name, value in _named_parts(contents.data)]
    beside = contents.size - sum(section.size for section in sections)
    return [*sections, Section("(names and layout)", max(0, beside))]


def tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; of a sparse one, of those that it stores."""
    return sum(part.numel() * part.element_size() for part in _stored(tensor))


def dtype_name(tensor: Tensor) -> str:
    """Return a tensor's dtype, such as `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def place_in_words(contents: Contents) -> str:
    """Return where in its training a checkpoint was saved, or why nothing can go on from it."""
    if contents.kind is Kind.LIGHTNING:
        return _place_of_lightning(contents)
    if contents.kind is not Kind.OURS:
        return f"no: it is {_ARTICLES[contents.kind]}{contents.kind}"
    if not contents.is_resumable:
        return "no: it holds weights alone"
    progress = contents.progress
    epoch, done = progress.get("epochs_completed", 0), progress.get("batches_in_epoch", 0)
    stage = progress.get("stage")
    if stage == EpochStage.BATCHES:
        place = f"inside epoch {epoch}, after {_of(done, contents)}"
    elif stage == EpochStage.BETWEEN:
        place = f"between two epochs, before epoch {epoch}" if epoch else "before epoch 0"
    else:
        place = f"at the end of epoch {epoch}, {_TO_DO.get(str(stage), 'in an unknown stage')}"
    return ", ".join(["yes", place, *_details(progress)])


def _place_of_lightning(contents: Contents) -> str:
    try:
        place = place_of(contents.data, contents.path)
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


_ARTICLES = {Kind.OTHER: "a ", Kind.WEIGHTS: "", Kind.SAFETENSORS: ""}


def _of(done: Any, contents: Contents) -> str:
    whole = mapping(contents.own.get("stream")).get("num_batches")
    return f"batch {done} of {whole}" if isinstance(whole, int) else f"{done} batches"


def _details(progress: dict[str, Any]) -> Iterator[str]:
    window = progress.get("batches_in_window", 0)
    if window:
        yield f"with the gradients of {window} batch{'' if window == 1 else 'es'} accumulated"
    if progress.get("is_batch_open"):
        yield "while the end of that batch was under way"


def _named_parts(data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if name == "trainer_hooks" and isinstance(value, dict):
            yield from ((f"trainer_hooks.{inner}", part) for inner, part in value.items())
        else:
            yield str(name), value


class _Scale(pickle.Pickler):
    """Weighs a value as it would be written: the tensors' memory, each once, and all the rest."""

    def __init__(self, seen: set[int]) -> None:
        super().__init__(self, protocol=2)
        self.size = 0
        self._seen = seen

    def write(self, data: bytes) -> int:
        """Take what the pickler writes: its size counts, and nothing else."""
        self.size += len(data)
        return len(data)

    def persistent_id(self, value: Any) -> str | None:
        """Keep tensors out of what is written, and count their memory."""
        if not isinstance(value, Tensor):
            return None
        for part in _stored(value):
            memory = part.untyped_storage()
            place = id(part) if part.is_meta else memory.data_ptr()  # of a folder, not read
            if place not in self._seen:
                self._seen.add(place)
                self.size += memory.nbytes()
        return ""


def _size_of(value: Any, seen: set[int]) -> int:
    scale = _Scale(seen)
    scale.dump(value)
    return scale.size


def _stored(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the dense tensors that a tensor is stored as."""
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return whole.indices(), whole.values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)
