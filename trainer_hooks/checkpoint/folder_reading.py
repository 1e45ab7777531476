"""Read a checkpoint that is a folder: whole, or the parts that a process needs."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    import os


__all__ = ["names_by_place", "read_shards", "with_empty_tensors", "with_tensors"]

Place = tuple[Any, ...]

_FAULTS = (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError)

_KNOWN = {
    "torch.distributed.checkpoint.metadata": None,
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.distributed.checkpoint.planner": None,
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
    "pathlib._local": {"PosixPath", "PurePosixPath", "Path"},
    "collections": {"OrderedDict"},
}
"""What torch's own description of a folder is made of; None for all classes of a module."""


class _PlainUnpickler(pickle.Unpickler):
    """Opens torch's description of a folder, and nothing that would run other code."""

    def find_class(self, module: str, name: str) -> Any:
        names = _KNOWN.get(module, set())
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        found = super().find_class(module, name) if names is None or name in names else None
        is_own = isinstance(found, type) and found.__module__ == module
        if found is None or (names is None and not is_own):
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found


class _Reader(FileSystemReader):
    """torch's reader, which opens the description of a folder without running code."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002 - torch's
        """Return the description."""
        with Path(self.path, ".metadata").open("rb") as file:
            return _description(file)


def read_shards(path: str | os.PathLike[str], into: dict[str, torch.Tensor]) -> None:
    """Fill tensors, which may be sharded, from a folder; only what this process needs is read.

    Args:
        path: the folder.
        into: them, by the names that they have there.

    Raises:
        CheckpointError: it cannot be read.
    """
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        with warnings.catch_warnings():
            # nothing is to be agreed on: each process reads what it lacks
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(into, storage_reader=_Reader(path), planner=planner, no_dist=True)
    except (*_FAULTS, CheckpointException) as error:
        raise _unreadable(path, error) from error


def names_by_place(run: dict[str, Any]) -> dict[Place, str]:
    """Return the names of the tensors that lie elsewhere, by where they belong in a checkpoint."""
    own = run.get("trainer_hooks", {})
    return {
        tuple(place): name for name, places in own.get("shards", {}).items() for place in places
    }


def with_empty_tensors(run: dict[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a folder holds, its tensors on the device meta."""
    told = _tensors_told(path)
    tensors = {
        name: torch.empty(info.size, dtype=info.properties.dtype, device="meta")
        for name, info in told.items()
    }
    return _filled(run, tensors)


def with_tensors(
    run: dict[str, Any], path: str | os.PathLike[str], map_location: Any = "cpu"
) -> dict[str, Any]:
    """Return what a folder holds, its tensors whole.

    Args:
        run: what of it is in its one file.
        path: the folder.
        map_location: where the tensors go: a device, or None for the CPU.
    """
    device = map_location if isinstance(map_location, str | torch.device) else "cpu"
    tensors = {
        name: torch.empty(info.size, dtype=info.properties.dtype, device=device)
        for name, info in _tensors_told(path).items()
    }
    read_shards(path, tensors)
    return _filled(run, tensors)


def _filled(run: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    filled: Any = run
    for place, name in names_by_place(run).items():
        if name in tensors:
            filled = _put(filled, place, tensors[name])
    found: dict[str, Any] = filled
    return found


def _put(tree: Any, place: Place, value: Any) -> Any:
    """Return a nesting with a value at a place of it."""
    if not place:
        return value
    key, rest = place[0], place[1:]
    if isinstance(tree, dict):
        tree[key] = _put(tree[key], rest, value)
        return tree
    items = list(tree)
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
    found = _PlainUnpickler(file).load()
    if not isinstance(found, Metadata):
        raise pickle.UnpicklingError(f"it holds a {type(found).__qualname__}")
    return found


def _unreadable(path: Any, error: BaseException) -> CheckpointError:
    text = str(error).splitlines()
    return CheckpointError(
        f"checkpoint {str(path)!r} cannot be read: {type(error).__name__}: "
        f"{text[0] if text else 'no data'}. Resume from an earlier one."
    )
