"""Write a checkpoint of several processes as a folder, whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save

from trainer_hooks.checkpoint import seal
from trainer_hooks.checkpoint.folder import (
    RUN,
    open_folder_part,
    seal_folder,
    sum_of,
)
from trainer_hooks.checkpoint.parts import sync_folder
from trainer_hooks.checkpoint.placing import remove_folder, take_place
from trainer_hooks.checkpoint.seal import Summary
from trainer_hooks.checkpoint.target import is_remote, located
from trainer_hooks.errors import CheckpointError, message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["require_local", "write_folder"]

Shard = "list[Any]"
"""A process's part of a tensor: it, the shape of the whole, and where in it the part begins."""


def write_folder(
    checkpoint: Mapping[str, Any],
    shards: Mapping[str, Sequence[Any]],
    path: str | os.PathLike[str],
    group: Any,
    *,
    module: str,
    saved_at: int,
    origin: str,
    process: str,
) -> str:
    """Write a checkpoint of several processes to `path`; return the absolute path.

    All processes must call it. Each writes its parts, and syncs them; when all have said so, the
    first writes the rest and the seal, and puts the folder in its place.

    Args:
        checkpoint: plain data and tensors; of the first process.
        shards: by name this process's part of each tensor, the shape of the whole, and where in it
            the part begins.
        path: where.
        group: the process group to tell each other by.
        module: as `write_checkpoint` takes it.
        saved_at: likewise.
        origin: likewise.
        process: likewise.

    Raises:
        CheckpointError: it cannot be written in one of the processes; what was there is untouched.
    """
    target = located(path)
    require_local(target)
    rank, lock = dist.get_rank(group), None
    part: Path | None = None
    try:
        if rank == 0:
            part, lock = _agreed(group, lambda: open_folder_part(Path(target)), tell=_first)
        else:
            part = _agreed(group, None)
        written = _all_agreed(group, lambda: _write_parts(part, shards, rank, group))

        def finish() -> str:
            assert part is not None
            sums = {name: told for one in written for name, told in one.items()}
            _write_rest(part, checkpoint)
            for name in (RUN, ".metadata"):
                sums[name] = sum_of(part / name)
            summary = Summary.of(checkpoint, saved_at, module, origin, process)
            seal_folder(part, sums, summary)
            take_place(part, Path(target))
            sync_folder(Path(target).parent)
            return target

        found: str = _agreed(group, finish if rank == 0 else None)
        return found
    except CheckpointError as error:
        if rank == 0 and part is not None and part.exists():
            with suppress(OSError):
                remove_folder(part)
        raise CheckpointError(
            f"checkpoint {target!r} could not be written: {message_of(error)}. What was there "
            "before is untouched. Check that the folder exists, is writable and has room."
        ) from error
    finally:
        if lock is not None:
            os.close(lock)


def require_local(target: str) -> None:
    """Make sure that a folder can be written to a place.

    Raises:
        CheckpointError: it is elsewhere than in the file system of this machine.
    """
    if is_remote(target):
        raise CheckpointError(
            f"checkpoint {target!r}: a folder of several processes can be saved to a path of this "
            "machine alone. Take FSDPStrategy(state_dict_type='full'), or save to a path."
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A process's part of a tensor, as torch.distributed.checkpoint asks for it."""

    tensor: torch.Tensor
    shape: torch.Size
    offsets: torch.Size

    def __create_write_items__(self, name: str, _: Any) -> list[WriteItem]:
        if not self.tensor.numel() and self.shape.numel():
            return []
        chunk = ChunkStorageMetadata(offsets=self.offsets, sizes=self.tensor.shape)
        properties = TensorProperties.create_from_tensor(self.tensor)
        data = TensorWriteData(chunk=chunk, properties=properties, size=self.shape)
        return [WriteItem(MetadataIndex(name, self.offsets), WriteItemType.SHARD, tensor_data=data)]


class _Planner(DefaultSavePlanner):
    """Finds the parts, which are no tensors of torch's own kinds: those would go to the device."""

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the tensor of a part."""
        return self.state_dict[index.fqn].tensor


def _write_parts(
    part: Path | None, shards: Mapping[str, Sequence[Any]], rank: int, group: Any
) -> dict[str, tuple[int, int]]:
    """Write this process's parts durably; return its files, with their sizes and checksums."""
    assert part is not None
    parts = {
        name: _Part(tensor.detach(), torch.Size(shape), torch.Size(offsets))
        for name, (tensor, shape, offsets) in shards.items()
    }
    writer = FileSystemWriter(part, sync_files=True)
    planner = _Planner(flatten_state_dict=False)
    save(parts, storage_writer=writer, planner=planner, process_group=group)
    files = part.glob(f"__{rank}_*.distcp")
    return {file.name: sum_of(file) for file in files}


def _write_rest(part: Path, checkpoint: Mapping[str, Any]) -> None:
    with (part / RUN).open("w+b") as file:
        torch.save(dict(checkpoint), file)
        seal.seal(file, Summary.of(checkpoint, 0))
        file.flush()
        os.fsync(file.fileno())


def _first(found: tuple[Path, int]) -> Path:
    return found[0]


def _agreed(group: Any, decide: Callable[[], Any] | None, tell: Any = lambda found: found) -> Any:
    """Return what the first process finds, or let all fail as it does."""
    found, box = None, [None, ""]
    if decide is not None:
        try:
            found = decide()
            box = [tell(found), ""]
        except (OSError, RuntimeError, ValueError) as error:
            box = [None, f"rank 0: {message_of(error)}"]
    dist.broadcast_object_list(box, 0, group=group, device=torch.device("cpu"))
    if box[1]:
        raise CheckpointError(str(box[1]))
    return box[0] if decide is None else found


def _all_agreed(group: Any, act: Callable[[], Any]) -> list[Any]:
    """Return what all processes find, or let all fail where one does."""
    found, fault = None, ""
    try:
        found = act()
    except (OSError, RuntimeError, ValueError, CheckpointException) as error:
        fault = f"rank {dist.get_rank(group)}: {message_of(error)}"
    box: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(box, (found, fault), group=group)
    faults = [text for _, text in box if text]
    if faults:
        raise CheckpointError(faults[0])
    return [one for one, _ in box]
