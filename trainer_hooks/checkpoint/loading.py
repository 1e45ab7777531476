"""Read a checkpoint of any kind and any format, as the present code knows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.decoding import decode
from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.checkpoint.migrations import migrate
from trainer_hooks.checkpoint.safetensors_file import SUFFIX, read_safetensors

if TYPE_CHECKING:
    import os

__all__ = ["load_checkpoint", "load_parts"]


def load_checkpoint(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Return the checkpoint at `path` in the present format, its values as they were saved.

    One that trainer_hooks has not written is returned as it is.

    Args:
        path: a checkpoint, or weights in a `.safetensors` file.
        map_location: where its tensors go, as in `torch.load`.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is damaged, no checkpoint, of a newer format, or would need code to be
            run.
    """
    checkpoint = _loaded(path, map_location)
    if is_parted(checkpoint):
        from trainer_hooks.checkpoint.folder_reading import with_tensors

        return with_tensors(checkpoint, path, map_location)
    return checkpoint


def load_parts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the same, where it is a folder without its tensors: they are on the device meta.

    `read_shards` reads what of them is needed.
    """
    checkpoint = _loaded(path, "cpu")
    if is_parted(checkpoint):
        from trainer_hooks.checkpoint.folder_reading import with_empty_tensors

        return with_empty_tensors(checkpoint, path)
    return checkpoint


def is_parted(checkpoint: dict[str, Any]) -> bool:
    """Return whether the tensors of a checkpoint lie beside it, in a folder."""
    own = checkpoint.get("trainer_hooks")
    return isinstance(own, dict) and "shards" in own


def _loaded(path: str | os.PathLike[str], map_location: Any) -> dict[str, Any]:
    if Path(path).suffix == SUFFIX:
        checkpoint = read_safetensors(path, map_location)
    else:
        checkpoint = read_checkpoint(path, map_location)
    if "trainer_hooks" not in checkpoint:
        return checkpoint
    present = migrate(checkpoint, str(path))
    return {key: decode(value, str(path)) for key, value in present.items()}
