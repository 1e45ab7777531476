"""Tensors of a sharded checkpoint folder: every rank writes and reads its own shards.

This module loads torch.distributed.checkpoint, several hundred modules. Import it inside a
function, where a sharded checkpoint is certain.
"""

from __future__ import annotations

import os
import pickle
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from trainer_hooks._system import sync_file, sync_folder
from trainer_hooks.checkpoint.atomic_write import (
    open_folder_part,
    remove_folder,
    replace_atomically,
)
from trainer_hooks.checkpoint.encoding import opened_by_trust
from trainer_hooks.checkpoint.paths import absolute_path, require_local
from trainer_hooks.checkpoint.seal import (
    RUN,
    CheckpointSummary,
    file_checksum,
    seal_folder,
    write_seal,
)
from trainer_hooks.errors import CheckpointError, error_message, is_interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Shard = "list[Any]"
"""A rank's shard of a tensor: the shard, the shape of the whole tensor, the offsets in it."""


def write_folder(
    checkpoint: Mapping[str, Any],
    shards: Mapping[str, Sequence[Any]],
    path: str | os.PathLike[str],
    group: Any,
    **facts: Any,
) -> str:
    """Write a sharded checkpoint to `path`; return the absolute path.

    All ranks must call it. Each writes and syncs its shards. When all have reported, rank 0 writes
    the rest and the seal, and moves the folder to `path`.

    Args:
        checkpoint: plain data and tensors of rank 0.
        shards: by name this rank's shard of each tensor: the shard, the shape of the whole
            tensor, and the shard's offsets in it.
        path: the folder.
        group: the process group for the collectives.
        **facts: the further arguments of `CheckpointSummary.of`.

    Raises:
        CheckpointError: a rank cannot write; the checkpoint that was there before is untouched.
    """
    target = absolute_path(path)
    require_local(target)
    rank, lock = dist.get_rank(group), None
    part: Path | None = None
    try:
        if rank == 0:
            # the lock is this process's own, and lasts until the folder is moved or given up
            part, lock = _agreed(
                group, lambda: open_folder_part(Path(target)), tell=lambda opened: opened[0]
            )
        else:
            part = _agreed(group, None)
        # no rank may leave earlier: the seal says that all shards are durable
        written = _all_agreed(group, lambda: _write_parts(part, shards, rank, group))

        def finish() -> str:
            assert part is not None
            sums = {name: told for checksums in written for name, told in checksums.items()}
            _write_rest(part, checkpoint)  # after the shards, as `.metadata` is
            for name in (RUN, ".metadata"):
                sums[name] = file_checksum(part / name)
            summary = CheckpointSummary.of(checkpoint, **facts)
            # last: a folder without a seal is no checkpoint, wherever a kill happens
            seal_folder(part, sums, summary)
            replace_atomically(part, Path(target))
            sync_folder(Path(target).parent)
            return target

        written_path: str = _agreed(group, finish if rank == 0 else None)
        return written_path
    except CheckpointError as error:
        # `_agreed` and `_all_agreed` raise on all ranks alike, so one rank can clean up for all
        if rank == 0 and part is not None and part.exists():  # not yet moved
            with suppress(OSError):
                remove_folder(part)
        raise CheckpointError(
            f"checkpoint {target!r} could not be written: {error_message(error)}. What was there "
            "before is untouched. Check that the folder exists, is writable and has room."
        ) from error
    finally:
        if lock is not None:
            os.close(lock)


@dataclass(frozen=True, slots=True)
class _ShardToWrite:
    """One rank's shard of a tensor, with the interface of torch.distributed.checkpoint."""

    tensor: torch.Tensor
    shape: torch.Size
    offsets: torch.Size

    def __create_write_items__(self, name: str, _: Any) -> list[WriteItem]:
        if not self.tensor.numel() and self.shape.numel():
            return []  # an uneven split leaves some ranks without rows
        chunk = ChunkStorageMetadata(offsets=self.offsets, sizes=self.tensor.shape)
        properties = TensorProperties.create_from_tensor(self.tensor)
        data = TensorWriteData(chunk=chunk, properties=properties, size=self.shape)
        return [WriteItem(MetadataIndex(name, self.offsets), WriteItemType.SHARD, tensor_data=data)]


class _Planner(DefaultSavePlanner):
    """A save planner that looks up shards."""

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the tensor of a shard."""
        # the default finds offsets in torch's own sharded tensors alone
        return self.state_dict[index.fqn].tensor


def _write_parts(
    part: Path | None, shards: Mapping[str, Sequence[Any]], rank: int, group: Any
) -> dict[str, tuple[int, int]]:
    """Write this rank's shards durably; return its files with their sizes and checksums."""
    assert part is not None
    parts = {
        name: _ShardToWrite(tensor.detach(), torch.Size(shape), torch.Size(offsets))
        for name, (tensor, shape, offsets) in shards.items()
    }
    # not flattened: the names are keys of one dict already, and may contain dots
    writer = FileSystemWriter(part, sync_files=True)
    planner = _Planner(flatten_state_dict=False)
    save(parts, storage_writer=writer, planner=planner, process_group=group)
    # torch's names for the files that this rank has written
    files = part.glob(f"__{rank}_*.distcp")
    return {file.name: file_checksum(file) for file in files}


def _write_rest(part: Path, checkpoint: Mapping[str, Any]) -> None:
    with (part / RUN).open("w+b") as file:
        torch.save(opened_by_trust(dict(checkpoint)), file)
        # for the checksums; the summary that searches read, with the time, is in the folder's seal
        write_seal(file, CheckpointSummary.of(checkpoint, 0))
        file.flush()
        sync_file(file.fileno())


def _agreed(group: Any, decide: Callable[[], Any] | None, tell: Any = lambda result: result) -> Any:
    """Return rank 0's result in all ranks, or raise its error in all of them."""
    result, box = None, [None, ""]
    interruption = None
    if decide is not None:
        try:
            result = decide()
            box = [tell(result), ""]
        except (OSError, RuntimeError, ValueError) as error:
            box = [None, f"rank 0: {error_message(error)}"]
            interruption = error if is_interruption(error) else None
    # after an error, too: the other ranks wait in this broadcast.
    # on the CPU: the group of saves is Gloo's, which also works beside a training on GPUs
    dist.broadcast_object_list(box, 0, group=group, device=torch.device("cpu"))
    if interruption is not None:
        raise interruption
    if box[1]:
        raise CheckpointError(str(box[1]))
    return box[0] if decide is None else result


def _all_agreed(group: Any, act: Callable[[], Any]) -> list[Any]:
    """Return the results of all ranks, or raise the first error of one in all of them."""
    result, fault, interruption = None, "", None
    try:
        result = act()
    except (OSError, RuntimeError, ValueError, CheckpointException) as error:
        # told below, not raised here: the other ranks wait for this one in the gathering
        fault = f"rank {dist.get_rank(group)}: {error_message(error)}"
        interruption = error if is_interruption(error) else None
    box: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(box, (result, fault), group=group)
    if interruption is not None:
        raise interruption
    faults = [text for _, text in box if text]
    if faults:
        raise CheckpointError(faults[0])
    return [value for value, _ in box]


StatePath = tuple[Any, ...]

_FAULTS = (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError)

_KNOWN = {
    "torch.distributed.checkpoint.metadata": None,
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.distributed.checkpoint.planner": None,
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},  # with which torch pickles a layout
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
    "pathlib._local": {"PosixPath", "PurePosixPath", "Path"},  # where Python 3.13 has them
    "collections": {"OrderedDict"},
}
"""The classes in torch's folder metadata, by module; None allows all classes of a module."""


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of torch's folder metadata that runs no other code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the allow list.

        Raises:
            pickle.UnpicklingError: it is not in the list.
        """
        # torch reads this file with pickle, which runs the code of any class that a file names
        names = _KNOWN.get(module, set())
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        allowed = super().find_class(module, name) if names is None or name in names else None
        # a module of the list also has the names that it imported from others
        is_own = isinstance(allowed, type) and allowed.__module__ == module
        if allowed is None or (names is None and not is_own):
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return allowed


class _SafeMetadataReader(FileSystemReader):
    """torch's folder reader, which opens the metadata without running code."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002 - torch's
        """Return the metadata of the folder."""
        with Path(self.path, ".metadata").open("rb") as file:
            return _description(file)


def read_shards(path: str | os.PathLike[str], into: dict[str, torch.Tensor]) -> None:
    """Fill tensors, which may be sharded, from a folder; each rank reads only the bytes it needs.

    Args:
        path: the folder.
        into: the tensors to fill, by their names in the folder.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    # not flattened, as they were not when they were written
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        with warnings.catch_warnings():
            # torch warns of no_dist, which is wanted: each rank reads alone, without collectives
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(into, storage_reader=_SafeMetadataReader(path), planner=planner, no_dist=True)
    except (*_FAULTS, CheckpointException) as error:
        raise _unreadable(path, error) from error


def shard_names_by_path(run: dict[str, Any]) -> dict[StatePath, str]:
    """Return the names of the tensors in shards, by their paths in the checkpoint."""
    entries = run.get("trainer_hooks", {})
    return {
        tuple(place): name for name, places in entries.get("shards", {}).items() for place in places
    }


def with_empty_tensors(run: dict[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a checkpoint with the tensors of its folder on the meta device."""
    told = _tensors_told(path)
    tensors = {
        name: torch.empty(info.size, dtype=info.properties.dtype, device="meta")
        for name, info in told.items()
    }
    return _filled(run, tensors)


def with_tensors(
    run: dict[str, Any], path: str | os.PathLike[str], map_location: Any = "cpu"
) -> dict[str, Any]:
    """Return a checkpoint with the tensors of its folder, read whole.

    Args:
        run: the content of `run.pt`.
        path: the folder.
        map_location: the device of the tensors; None for the CPU.
    """
    # functions and dicts map devices that torch.load finds in its own format, not in shards
    device = map_location if isinstance(map_location, str | torch.device) else "cpu"
    tensors = {
        name: torch.empty(info.size, dtype=info.properties.dtype, device=device)
        for name, info in _tensors_told(path).items()
    }
    read_shards(path, tensors)
    return _filled(run, tensors)


def _filled(run: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    # a tensor may belong at several paths, as a tied weight does
    for place, name in shard_names_by_path(run).items():
        if name in tensors:
            run = _put(run, place, tensors[name])
    return run


def _put(tree: Any, place: StatePath, value: Any) -> Any:
    """Return a nested state with `value` at a path in it."""
    if not place:
        return value
    key, rest = place[0], place[1:]
    if isinstance(tree, dict):
        tree[key] = _put(tree[key], rest, value)
        return tree
    items = list(tree)  # a tuple cannot be changed in place
    items[key] = _put(items[key], rest, value)
    return type(tree)(items)


def _tensors_told(path: str | os.PathLike[str]) -> dict[str, TensorStorageMetadata]:
    try:
        with Path(path, ".metadata").open("rb") as file:
            described = _description(file).state_dict_metadata.items()
    except (OSError, pickle.UnpicklingError, AttributeError, EOFError) as error:
        raise _unreadable(path, error) from error
    return {name: info for name, info in described if isinstance(info, TensorStorageMetadata)}


def _description(file: IO[bytes]) -> Metadata:
    metadata = _PlainUnpickler(file).load()
    if not isinstance(metadata, Metadata):
        raise pickle.UnpicklingError(f"it holds a {type(metadata).__qualname__}")
    return metadata


def _unreadable(path: Any, error: BaseException) -> CheckpointError:
    text = str(error).splitlines()
    return CheckpointError(
        f"checkpoint {str(path)!r} cannot be read: {type(error).__name__}: "
        f"{text[0] if text else 'no data'}. Resume from an earlier one."
    )
