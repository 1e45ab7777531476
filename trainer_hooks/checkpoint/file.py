"""Write a checkpoint whole or not at all; read one without running code."""

from __future__ import annotations

import os
import pickle
import re
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.checkpoint import seal
from trainer_hooks.checkpoint.folder import RUN, check_folder, folder_summary, is_folder
from trainer_hooks.checkpoint.parts import write_whole
from trainer_hooks.checkpoint.seal import Summary
from trainer_hooks.checkpoint.target import is_remote, located, modified_at
from trainer_hooks.checkpoint.verified import load_verified
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    from trainer_hooks.checkpoint.sums import Sums

__all__ = ["read_checkpoint", "summarize", "verify_checkpoint", "write_checkpoint"]

_SHOWN = 10


def write_checkpoint(
    checkpoint: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    dump: Callable[[dict[str, Any], IO[bytes]], None] | None = None,
    module: str = "",
    saved_at: int | None = None,
    origin: str = "",
    process: str = "",
) -> str:
    """Write `checkpoint` to `path`, making its folder; return the absolute path, or the address.

    It is written beside the target, synced to disk, and moved into place, so that a process killed
    at any moment leaves either the old file or the new one. What killed processes left unfinished
    in the folder is removed first. To another store (`s3://...`) it is sent whole, and read back.

    Args:
        checkpoint: plain data and tensors.
        path: where.
        dump: writes it into an open file, as another kind of file; sealed `torch.save` unless
            given.
        module: the name of the module's class, which the file's summary tells.
        saved_at: when it is saved, in nanoseconds since 1970; now, unless given.
        origin: what tells its run from others, for the summary.
        process: what tells this process from others, for the summary.

    Raises:
        CheckpointError: it cannot be written; the file that was there before is untouched.
    """
    target = located(path)
    now = time.time_ns() if saved_at is None else saved_at
    summary = Summary.of(checkpoint, now, module, origin, process)

    def write(file: IO[bytes]) -> None:
        if dump is not None:
            dump(checkpoint, file)
        else:
            torch.save(checkpoint, file)
            seal.seal(file, summary)
        file.flush()
        os.fsync(file.fileno())

    try:
        if is_remote(target):
            _send(write, target)
        else:
            write_whole(Path(target), write)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"checkpoint {target!r} could not be written: {_root_of(error)}. What was there before "
            "is untouched. Check that the folder exists, is writable and has room."
        ) from error
    return target


def read_checkpoint(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Return the checkpoint at `path`, its tensors on `map_location`.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is truncated, damaged, no checkpoint, or would need code to be run.
    """
    if _is_folder(path):
        return _read_run(path, map_location)
    with _at_hand(path) as file:
        name = str(path)
        try:
            with file.open("rb") as content:
                return load_verified(
                    content,
                    lambda sums: _require_undamaged(file, name, sums),
                    lambda source: _load(source, name, map_location=map_location),
                )
        except OSError as error:
            raise _unreadable(name, error) from error


def verify_checkpoint(path: str | os.PathLike[str]) -> None:
    """Make sure that the file at `path` is what was written; nothing of it is loaded.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is truncated or damaged.
    """
    if _is_folder(path):
        _require_undamaged_folder(path)
        return
    with _at_hand(path) as file:
        _require_undamaged(file, str(path))


def summarize(path: str) -> Summary:
    """Return what the checkpoint at `path` is, from its last bytes; nothing is verified.

    Of a file that another tool wrote, the part that tells is loaded, without its tensors.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is no checkpoint, or too damaged to tell.
    """
    if _is_folder(path):
        try:
            return folder_summary(Path(located(path)))
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        tail = remote.read_tail(path, seal.TAIL)
    else:
        try:
            with _at_hand(path) as local, local.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - seal.TAIL))
                tail = file.read()
        except CheckpointNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from error
    try:
        summary = seal.read_summary(tail)
    except ValueError as error:
        raise _damaged(path, error) from error
    if summary is not None:
        return summary
    with _at_hand(path) as local:
        checkpoint = _load(local, path, map_location="cpu", mmap=True)
        return Summary.of(checkpoint, modified_at(path))


def _is_folder(path: str | os.PathLike[str]) -> bool:
    return not is_remote(path) and Path(located(path)).is_dir() and is_folder(located(path))


def _read_run(path: str | os.PathLike[str], map_location: Any) -> dict[str, Any]:
    """Return what a folder of several processes holds beside their tensors, all verified."""
    _require_undamaged_folder(path)
    return _load(Path(located(path), RUN), str(path), map_location=map_location)


def _require_undamaged_folder(path: str | os.PathLike[str]) -> None:
    try:
        check_folder(Path(located(path)))
    except ValueError as error:
        raise _damaged(str(path), error) from error
    except OSError as error:
        raise _unreadable(str(path), error) from error


def _send(write: Callable[[IO[bytes]], None], target: str) -> None:
    from trainer_hooks.checkpoint import remote

    with TemporaryDirectory(prefix="trainer_hooks-") as folder:
        local = Path(folder, "unsent")
        with local.open("w+b") as file:
            write(file)
        remote.upload(local, target)


@contextmanager
def _at_hand(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the local file that is at `path`, or is a copy of it while the context is open."""
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        with remote.fetched(str(path)) as local:
            yield local
        return
    file = Path(located(path))
    if file.is_dir():
        raise CheckpointNotFoundError(
            f"checkpoint {str(path)!r} is not there: it is a folder without a seal, and so no "
            "checkpoint of several processes, or an unfinished one. Give another one."
        )
    if not file.is_file():
        raise CheckpointNotFoundError(f"checkpoint {str(path)!r} is not there.{_others(file)}")
    yield file


def _load(file: Path | IO[bytes], name: str, **options: Any) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            # torch's own way to read int8 weights
            warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
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


def _require_undamaged(file: Path, name: str, sums: Sums | None = None) -> None:
    try:
        with file.open("rb") as content:
            seal.check(content, sums)
    except ValueError as error:
        raise _damaged(name, error) from error
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {name!r} cannot be read: {error}. Check the permissions and the disk."
    )


def _damaged(name: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {name!r} is damaged: it is not what was written ({error}). Resume from an "
        "earlier one."
    )


def _root_of(error: BaseException) -> BaseException:
    """Return the system's error that torch stumbled over, which says more than torch's own."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__
    return found or error


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
