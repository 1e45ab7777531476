"""Write a checkpoint whole or not at all; read one without running code."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import BadZipFile, ZipFile, is_zipfile

import torch

from trainer_hooks.checkpoint.verified import load_verified
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["read_checkpoint", "write_checkpoint"]

_SHOWN = 10


def write_checkpoint(
    checkpoint: dict[str, Any],
    path: str | os.PathLike[str],
    dump: Callable[[dict[str, Any], BinaryIO], None] | None = None,
) -> str:
    """Write `checkpoint` to `path`, making its folder, and return the absolute path.

    It is written beside the target, synced to disk, and moved into place, so that a process killed
    at any moment leaves either the old file or the new one.

    Args:
        checkpoint: what to write.
        path: where.
        dump: writes it into an open file; `torch.save` unless given.

    Raises:
        CheckpointError: it cannot be written; the file that was there before is untouched.
    """
    target = Path(path).absolute()
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        )
        with os.fdopen(descriptor, "wb") as file:
            (dump or torch.save)(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        _take_usual_mode(temporary)
        Path(temporary).replace(target)
        temporary = None
        _sync_folder(target.parent)
    except CheckpointError:
        raise
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"checkpoint {str(target)!r} could not be written: {error}. What was there before is "
            "untouched. Check that the folder exists, is writable and has room."
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
    return str(target)


def read_checkpoint(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Return the checkpoint at `path`, its tensors on `map_location`.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is truncated, no checkpoint, or would need code to be run.
    """
    file = Path(path)
    if not file.is_file():
        raise CheckpointNotFoundError(f"checkpoint {str(path)!r} is not there.{_others(file)}")
    return load_verified(
        lambda: _require_undamaged(file), lambda: _load(file, str(path), map_location=map_location)
    )


def _load(file: Path, name: str, **options: Any) -> dict[str, Any]:
    try:
        checkpoint = torch.load(file, weights_only=True, **options)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise CheckpointError(
            f"checkpoint {name!r} cannot be opened: it is no checkpoint, is damaged, or holds "
            "objects that only code could rebuild, which is never run here"
            f"{f' (it asks for {found[1]})' if found else ''}. Save plain data and tensors."
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file makes torch stumble over
        raise CheckpointError(
            f"checkpoint {name!r} cannot be read: it is truncated or no checkpoint "
            f"({_first_line(error)}). Resume from an earlier one."
        ) from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        kind = type(checkpoint).__qualname__
        is_dict = isinstance(checkpoint, dict)
        held = f" with the keys {sorted(map(str, checkpoint))[:8]}" if is_dict else ""
        raise CheckpointError(
            f"{name!r} is no trainer checkpoint: it holds a {kind}{held}, and must hold a "
            "dict with the key 'state_dict'. To use bare weights, call module.load_state_dict."
        )
    return checkpoint


def _require_undamaged(file: Path) -> None:
    """Compare every part of the file with the checksum that was written with it.

    torch does not: a bit that changed on the disk would become another weight.
    """
    damaged = None
    try:
        if is_zipfile(file):
            with ZipFile(file) as parts:
                damaged = parts.testzip()
    except (BadZipFile, EOFError, OSError, RuntimeError, ValueError, zlib.error) as error:
        damaged = _first_line(error)
    if damaged is not None:
        raise CheckpointError(
            f"checkpoint {str(file)!r} is damaged: it is not what was written ({damaged}). Resume "
            "from an earlier one."
        )


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no data'}"


def _others(file: Path) -> str:
    """Name what lies beside a missing file, which is often what was meant."""
    if not file.parent.is_dir():
        return f" Its folder {str(file.parent)!r} does not exist either."
    names = sorted(entry.name for entry in file.parent.glob("*.ckpt"))
    if not names:
        return " In its folder there is no .ckpt file."
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f" In its folder there are: {', '.join(names[:_SHOWN])}{more}."


def _take_usual_mode(path: str) -> None:
    """Give a temporary file the mode that a newly made file would have."""
    umask = os.umask(0)
    os.umask(umask)
    Path(path).chmod(0o666 & ~umask)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
