"""Checkpoint files and sharded folders: write atomically, verify, read without running code.

A checkpoint of several processes may be a folder::

    NAME.ckpt/
        .metadata, __0_0.distcp, __1_0.distcp...   tensors, by torch.distributed.checkpoint
        run.pt                                     the rest, as a checkpoint file holds it
        seal.json                                  written last: size and checksum of each file

A folder without a seal is no checkpoint.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._files import file_fault, is_missing
from trainer_hooks._text import first_few, printable
from trainer_hooks.checkpoint import seal
from trainer_hooks.checkpoint.atomic_write import (
    copy_folder,
    is_sharded_folder,
    open_atomically,
)
from trainer_hooks.checkpoint.encoding import decode, opened_by_trust
from trainer_hooks.checkpoint.parts import require_format, require_types
from trainer_hooks.checkpoint.paths import (
    absolute_path,
    can_be_mapped,
    is_remote,
    modified_at,
    open_whole,
)
from trainer_hooks.checkpoint.pickled_object import reading_pickles_unopened
from trainer_hooks.checkpoint.safetensors_file import SAFETENSORS_SUFFIX, read_safetensors
from trainer_hooks.checkpoint.seal import CheckpointSummary, RunIdentity, load_verified
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError, is_interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    from trainer_hooks.checkpoint.custom_io import CustomIO
    from trainer_hooks.checkpoint.seal import Checksums

_SHOWN = 10


def write_checkpoint(
    checkpoint: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    dump: Callable[[dict[str, Any], IO[bytes]], None] | None = None,
    io: CustomIO | None = None,
    storage_options: Any = None,
    module: str = "",
    saved_at: int | None = None,
    origin: str = "",
    process: str = "",
    command: str = "",
    identity: RunIdentity = RunIdentity(),  # noqa: B008 - frozen
) -> str:
    """Write `checkpoint` to `path`, making its folder; return the absolute path, or the address.

    The file is written beside the target, synced to disk, and moved, so that a process killed at
    any moment leaves either the old file or the new one. Leftovers of killed processes in the
    folder are deleted first. To another store (`s3://...`) the file is uploaded and read back.

    Args:
        checkpoint: plain data and tensors.
        path: the file, or an address.
        dump: writes the checkpoint into an open file in another format; by default it is a
            sealed `torch.save` file.
        io: writes the file instead, in a format of its own; `dump` is not used then.
        storage_options: passed to the IO.
        module: the name of the module's class, for the summary.
        saved_at: when it is saved, in nanoseconds since 1970; now, unless given.
        origin: the run's origin, for the summary.
        process: the identity of this process, for the summary.
        command: the beginning of the run's command line, for the summary.
        identity: what tells the run from others of its origin, for the summary.

    Raises:
        CheckpointError: it cannot be written; the file that was there before is untouched.
    """
    target = absolute_path(path)
    now = time.time_ns() if saved_at is None else saved_at
    summary = CheckpointSummary.of(checkpoint, now, module, origin, process, command, identity)
    if io is not None:
        # of a mapping that a user's code has made, nothing is known
        is_ours = "trainer_hooks" in checkpoint
        io.write(checkpoint, target, summary if is_ours else None, storage_options)
        return target

    def write() -> None:
        with open_whole(target) as file:
            if dump is not None:
                dump(checkpoint, file)
            else:
                torch.save(opened_by_trust(checkpoint), file)
                seal.write_seal(file, summary)

    try:
        try:
            write()
        except FileNotFoundError:
            # somebody has removed the folder since it was made, as a save in the background may
            # find: it is made once more
            write()
    except (OSError, RuntimeError, ValueError) as error:  # torch raises RuntimeError on a full disk
        # of `dump` or of a remote store, whose messages say what to do; or of a loader's worker
        # that died meanwhile, with which the file has nothing to do
        if isinstance(error, CheckpointError) or is_interruption(error):
            raise
        raise CheckpointError(
            f"checkpoint {target!r} could not be written: {_root_of(error)}. What was there before "
            "is untouched. Check that the folder exists, is writable and has room."
        ) from error
    return target


def copy_checkpoint(source: str, target: str, io: CustomIO | None = None) -> None:
    """Copy a checkpoint, a file or a sharded folder, to another path of the same store.

    As with `write_checkpoint`, the copy is there whole or not at all.

    Args:
        source: the checkpoint.
        target: the path of the copy.
        io: reads and writes it instead.

    Raises:
        CheckpointError: it cannot be written; the checkpoint that was there before is untouched.
    """
    if io is not None:
        io.write(io.read(source), target)
        return
    if is_remote(target):
        from trainer_hooks.checkpoint import remote

        remote.copy(source, target)
        return
    try:
        if _is_folder(source):
            copy_folder(Path(absolute_path(source)), Path(target))
            return
        # in this order: Windows moves nothing over a file that is open, which may be the source
        with open_atomically(Path(target)) as file, Path(source).open("rb") as whole:
            shutil.copyfileobj(whole, file)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {target!r} could not be written as a copy of {source!r}: {error}. What "
            "was there before is untouched. Check that the folder is writable and has room."
        ) from error


def load_checkpoint(
    path: str | os.PathLike[str],
    map_location: Any = "cpu",
    *,
    reads_shards: bool = True,
    io: CustomIO | None = None,
) -> dict[str, Any]:
    """Return the checkpoint at `path` in the present format, its values decoded.

    A checkpoint that trainer_hooks did not write is returned unchanged.

    Args:
        path: a checkpoint, or weights in a `.safetensors` file.
        map_location: where its tensors go, as in `torch.load`.
        reads_shards: False to leave the tensors of a sharded folder on the meta device;
            `read_shards` then reads those that a rank needs.
        io: reads the file instead; it puts the tensors where it likes.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is damaged, no checkpoint, of a newer format, or would need code to be
            run.
    """
    if io is not None:
        checkpoint = io.read(path)
    elif Path(path).suffix == SAFETENSORS_SUFFIX:  # has neither a seal nor a format
        if not is_remote(path):
            require_file(Path(absolute_path(path)), str(path))
        checkpoint = read_safetensors(path, map_location)
    else:
        checkpoint = read_checkpoint(path, map_location)
    if "trainer_hooks" not in checkpoint:
        return checkpoint
    checkpoint = in_present_format(checkpoint, str(path), warns=True)
    if not has_shards(checkpoint):
        return checkpoint
    from trainer_hooks.checkpoint.sharded_folder import with_empty_tensors, with_tensors

    if reads_shards:
        return with_tensors(checkpoint, path, map_location)
    return with_empty_tensors(checkpoint, path)


def in_present_format(checkpoint: dict[str, Any], source: str, *, warns: bool) -> dict[str, Any]:
    """Return a checkpoint that trainer_hooks wrote, decoded, its parts checked.

    Args:
        checkpoint: as it was read.
        source: the file, for messages.
        warns: whether to warn of values whose class the program has not loaded.

    Raises:
        CheckpointError: it is of a newer format, or a part of it cannot be used.
    """
    require_format(checkpoint, source)
    decoded = {key: decode(value, source, warns=warns) for key, value in checkpoint.items()}
    require_types(decoded, source)
    return decoded


def has_shards(checkpoint: dict[str, Any]) -> bool:
    """Return whether the tensors of a checkpoint lie beside it, in shards of a folder."""
    entries = checkpoint.get("trainer_hooks")
    return isinstance(entries, dict) and "shards" in entries


def read_checkpoint(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Return the checkpoint at `path` as it was written, its tensors on `map_location`.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is truncated, damaged, no checkpoint, or would need code to be run.
    """
    if _is_folder(path):
        # all its files first, also the shards that are read later
        _require_undamaged_folder(path)
        run = Path(absolute_path(path), seal.RUN)
        require_file(run, str(run))
        return _unpickle(run, str(path), map_location=map_location)
    with _at_hand(path) as file:
        name = str(path)
        try:
            with file.open("rb") as content:
                return load_verified(
                    content,
                    lambda sums: _require_undamaged(file, name, sums),
                    lambda source: _unpickle(source, name, map_location=map_location),
                )
        except OSError as error:
            raise _unreadable(name, error) from error


def verify_checkpoint(path: str | os.PathLike[str], io: CustomIO | None = None) -> None:
    """Raise unless the file at `path` is as it was written. Nothing of it is loaded.

    Args:
        path: the checkpoint.
        io: reads the file, which passes if it can; such a file has no seal to compare it with.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is truncated or damaged.
    """
    if io is not None:
        io.read(path)
        return
    if _is_folder(path):
        _require_undamaged_folder(path)
        return
    with _at_hand(path) as file:
        _require_undamaged(file, str(path))


def summarize(path: str, io: CustomIO | None = None) -> CheckpointSummary:
    """Return the summary of the checkpoint at `path` from its last bytes. Nothing is verified.

    A file that another tool wrote has no seal: its data is loaded without the tensors.

    Args:
        path: the checkpoint.
        io: reads the file instead, all of it.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: it is no checkpoint, or too damaged for a summary.
    """
    if io is not None:
        return io.summarize(path)
    # the end alone: a search reads the summary of every file in a folder
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        tail = remote.read_tail(path, seal.TAIL)
    else:
        # once: of ten thousand files, making paths takes longer than reading their ends
        local = Path(absolute_path(path))
        if is_sharded_folder(local):
            try:
                return seal.folder_summary(local)
            except (OSError, ValueError) as error:
                raise _damaged(path, error) from error
        require_file(local, path)
        try:
            with local.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - seal.TAIL))
                tail = file.read()
        except OSError as error:
            raise _unreadable(path, error) from error
    try:
        summary = seal.read_summary(tail)
    except ValueError as error:
        raise _damaged(path, error) from error
    if summary is not None:
        return summary
    # without a seal, another tool wrote it
    with _at_hand(path) as file_at_hand:
        # tensors are not read
        mmap = can_be_mapped(file_at_hand)
        checkpoint = _unpickle(file_at_hand, path, map_location="cpu", mmap=mmap)
        return CheckpointSummary.of(checkpoint, modified_at(path))


def _is_folder(path: str | os.PathLike[str]) -> bool:
    return not is_remote(path) and is_sharded_folder(absolute_path(path))


def _require_undamaged_folder(path: str | os.PathLike[str]) -> None:
    try:
        seal.check_folder(Path(absolute_path(path)))
    except ValueError as error:
        raise _damaged(str(path), error) from error
    except OSError as error:
        raise _unreadable(str(path), error) from error


@contextmanager
def _at_hand(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a local file: the one at `path`, or a temporary copy of a remote one."""
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        with remote.downloaded(str(path)) as local:
            yield local
        return
    file = Path(absolute_path(path))
    require_file(file, str(path))
    yield file


def require_file(file: Path, name: str) -> None:
    """Raise unless a checkpoint can be opened at a path of this machine, without waiting for it.

    Args:
        file: the path; it may be that of a sharded folder.
        name: the path as it was given, for messages.

    Raises:
        CheckpointNotFoundError: there is no file.
        CheckpointError: there is something else, such as a pipe, or it may not be looked at.
    """
    reason = absence_of(file)
    if reason.startswith(_NOT_THERE):
        is_folder = os.path.isdir(file)  # noqa: PTH112 - as below
        advice = " Give the path of a file; a fit finds its own with ckpt_path='last'." * is_folder
        raise CheckpointNotFoundError(f"checkpoint {name!r} {reason}.{advice}")
    if reason:
        raise CheckpointError(f"checkpoint {name!r} {reason}. Give the path of a checkpoint.")


_NOT_THERE = "is not there"

TORCH_FORMATS = (b"PK\x03\x04", b"\x80")
"""The first bytes of torch's present format, a zip file, and of a pickle, its older one."""


def absence_of(file: Path) -> str:
    """Return why there is no checkpoint to open at a path of this machine; empty if there is one.

    Nothing is opened: to open a pipe would block.

    Args:
        file: the path; it may be that of a sharded folder.
    """
    fault = file_fault(file)
    if not fault or is_sharded_folder(file):
        return ""
    if os.path.isdir(file):  # noqa: PTH112 - as `exists`: Path's raise for a name that is too long
        return (
            f"{_NOT_THERE}: it is a folder without a seal, and so no checkpoint of several "
            f"processes, or an unfinished one.{_checkpoints_in(file)}"
        ).removesuffix(".")
    if is_missing(file):
        link = ": it is a link that leads nowhere" if file.is_symlink() else ""
        return f"{_NOT_THERE}{link}.{_others(file)}".removesuffix(".")
    return f"cannot be read: {fault}"


def _unpickle(file: Path | IO[bytes], name: str, **options: Any) -> dict[str, Any]:
    try:
        with warnings.catch_warnings(), reading_pickles_unopened():
            # torch itself causes this warning when it reads int8 weights
            warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
            # of each sparse tensor, from torch 2.15 on: the check is wanted
            warnings.filterwarnings("ignore", message="Validating sparse tensor invariants")
            checkpoint = torch.load(file, weights_only=True, **options)
    except MemoryError:
        raise  # the machine is too small, the file may be whole
    except Exception as error:  # torch raises errors of many types for a damaged file
        if is_interruption(error):
            raise
        raise _unloadable(file, name, error) from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        kind = type(checkpoint).__qualname__
        is_dict = isinstance(checkpoint, dict)
        held = f" with the keys {sorted(map(str, checkpoint))[:8]}" if is_dict else ""
        raise CheckpointError(
            f"{name!r} is no trainer checkpoint: it holds a {kind}{held}, and must hold a "
            "dict with the key 'state_dict'. To use bare weights, call module.load_state_dict."
        )
    return checkpoint


def _unloadable(file: Path | IO[bytes], name: str, error: Exception) -> CheckpointError:
    """Return the error for a file that torch could not load, by its first bytes and torch's error.

    Args:
        file: the file, closed or open.
        name: its path as it was given.
        error: torch's error.
    """
    if isinstance(file, Path):
        with file.open("rb") as content:
            head = content.read(8)
    else:
        file.seek(0)
        head = file.read(8)
    if not head:
        return CheckpointError(
            f"checkpoint {name!r} cannot be read: it is empty. Resume from an earlier one."
        )
    if not head.startswith(TORCH_FORMATS):
        return CheckpointError(
            f"checkpoint {name!r} cannot be read: it was not written by torch.save, and so is no "
            "checkpoint. Give the path of one."
        )
    if isinstance(error, pickle.UnpicklingError):
        # torch names the refused class only inside its message
        refused = re.search(r"GLOBAL (\S+)", str(error))
        return CheckpointError(
            f"checkpoint {name!r} cannot be opened: it is no checkpoint, is damaged, or holds "
            "objects that only code could rebuild, which is never run here"
            f"{f' (it asks for {refused[1]})' if refused else ''}. Save plain data and tensors."
        )
    return CheckpointError(
        f"checkpoint {name!r} cannot be read: it is truncated or no checkpoint "
        f"({_first_line(error)}). Resume from an earlier one."
    )


def _require_undamaged(file: Path, name: str, sums: Checksums | None = None) -> None:
    try:
        with file.open("rb") as content:
            seal.verify_seal(content, sums)
    except ValueError as error:
        # its text is in the message, and a traceback of its own would stand above that
        raise _damaged(name, error) from None
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
    """Return the operating system's error behind torch's error; it says more than torch's own."""
    cause: BaseException | None = error
    # "No space left on device" is the context of torch's "unexpected pos"
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return cause or error


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no data'}"


def _others(file: Path) -> str:
    """List the checkpoints beside a missing file: often one of them was meant."""
    if not os.path.isdir(file.parent):  # noqa: PTH112
        return f" Its folder {str(file.parent)!r} does not exist either."
    return _checkpoints_in(file.parent, "its folder") or " In its folder there is no .ckpt file."


def _checkpoints_in(folder: Path, name: str = "it") -> str:
    """List the checkpoints in a folder, in one sentence; empty where there is none."""
    # sharded folders too: they are named as files are
    # of the folder of a run or of several runs, those below it: a search of all could take minutes
    for pattern in ("*.ckpt", "checkpoints/*.ckpt", "*/*/checkpoints/*.ckpt"):
        paths = [entry.relative_to(folder).as_posix() for entry in folder.glob(pattern)]
        if paths:
            break
    else:
        return ""
    return f" In {name} there are: {first_few(sorted(map(printable, paths)), _SHOWN)}."
