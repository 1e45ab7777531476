"""Paths of this machine, and addresses of other stores such as `s3://bucket/run`, treated alike.

For a local path no function costs more than a look at its text. The module of remote stores is
imported only for an address, and that of files that are written only where they are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

from trainer_hooks._system import IS_WINDOWS, without_file_scheme
from trainer_hooks.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_LOCAL = "file://"


def require_reachable(path: str, what: str) -> None:
    """Raise unless the package that serves an address is installed. Nothing is contacted.

    Args:
        path: a path, or the address of another store.
        what: the argument that holds the path, for messages.

    Raises:
        OptionError: the store is unknown, or its package is not installed.
    """
    if is_remote(path):
        from trainer_hooks.checkpoint.remote import unusable_reason

        reason = unusable_reason(path)
        if reason:
            raise OptionError(f"{what}: {reason}.")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is the address of another store: `memory://...`, `s3://...`."""
    text = os.fspath(path)
    return "://" in text and not text.startswith(_LOCAL)


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return `path` as an absolute path without `file://`; an address without a closing slash."""
    text = os.fspath(path)
    if is_remote(text):
        return text.rstrip("/")
    # not resolve(): a link such as last.ckpt is meant by its own name
    return str(Path(without_file_scheme(text)).absolute())


def join_path(folder: str, *names: str) -> str:
    """Join a folder, local or remote, and names below it."""
    if is_remote(folder):
        return "/".join([folder.rstrip("/"), *names])
    return str(Path(folder, *names))


def parent_folder(path: str) -> str:
    """Return the folder of a file."""
    return path.rpartition("/")[0] if is_remote(path) else str(Path(path).parent)


def file_name(path: str) -> str:
    """Return the name of a file without its folder."""
    return path.rpartition("/")[2] if is_remote(path) else Path(path).name


def exists(path: str) -> bool:
    """Return whether there is a file at `path`, or a link, even a broken one."""
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        return remote.exists(path)
    # `exists` follows links: a broken one is no file, but its name is taken
    return Path(path).exists() or Path(path).is_symlink()


def modified_at(path: str) -> int:
    """Return when a file was written, in nanoseconds since 1970; 0 if that is not known."""
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        return remote.modified_at(path)
    try:
        return Path(path).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def open_whole(path: str, what: str = "checkpoint") -> AbstractContextManager[IO[bytes]]:
    """Open a new file that is at `path` once the `with` block ends without an error.

    Args:
        path: an absolute path, or an address.
        what: the name of the file's role in messages about an address.
    """
    if is_remote(path):
        from trainer_hooks.checkpoint.remote import open_upload

        return open_upload(path, what)
    from trainer_hooks.checkpoint.atomic_write import open_atomically

    return open_atomically(Path(path))


def remove(path: str) -> None:
    """Delete a checkpoint, a file or a sharded folder, if it is there.

    Raises:
        OSError: it cannot be deleted.
        CheckpointError: the remote store does not answer.
    """
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        remote.remove(path)
        return
    from trainer_hooks.checkpoint.atomic_write import is_sharded_folder, remove_folder

    if is_sharded_folder(path):
        remove_folder(Path(path))
    else:
        Path(path).unlink(missing_ok=True)


def is_inside(path: str, folder: str) -> bool:
    """Return whether a file lies in a folder, with links in the folder's path resolved."""
    if is_remote(folder) or is_remote(path):
        return path.startswith(folder.rstrip("/") + "/")
    # not file.resolve(): the file itself may be a link that points out of its folder
    file = Path(path)
    return (file.parent.resolve() / file.name).is_relative_to(Path(folder).resolve())


def files_in(folder: str, extension: str, depth: int = 0) -> list[str]:
    """Return the checkpoints with an extension in a folder, and down to `depth` folders below it.

    Unfinished files are left out. A folder that is missing gives an empty list.
    """
    if is_remote(folder):
        from trainer_hooks.checkpoint import remote

        return remote.files_in(folder, extension, depth)
    from trainer_hooks.checkpoint.atomic_write import is_sharded_folder

    return [
        str(path)
        for level in range(depth + 1)
        for path in Path(folder).glob(f"{'*/' * level}*{extension}")
        # pathlib's * matches hidden names, too
        if not path.name.startswith(".") and (path.is_file() or is_sharded_folder(path))
    ]


def require_local(target: str) -> None:
    """Raise if a path is an address: sharded checkpoints are saved to the local file system alone.

    Raises:
        CheckpointError: it is the address of another store.
    """
    if is_remote(target):
        raise CheckpointError(
            f"checkpoint {target!r}: a folder of several processes can be saved to a path of this "
            "machine alone. Take FSDPStrategy(state_dict_type='full'), or save to a path."
        )


def can_be_mapped(path: Path) -> bool:
    """Return whether torch can map a file into memory, for which its path must be UTF-8.

    On Windows a file that is mapped cannot be replaced: the next save would fail.
    """
    if IS_WINDOWS:
        return False
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True
