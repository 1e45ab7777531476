"""Where checkpoints are: paths of this machine, and addresses such as `s3://bucket/run` of others.

Nothing here costs a local path more than a look at its text.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainer_hooks.errors import OptionError

__all__ = [
    "exists",
    "files_in",
    "folder_of",
    "is_inside",
    "is_remote",
    "joined",
    "located",
    "modified_at",
    "name_of",
    "remove",
    "require_reachable",
]

_LOCAL = "file://"


def require_reachable(path: str, what: str) -> None:
    """Make sure that what serves the store of an address is installed; nothing is contacted.

    Args:
        path: a path, or the address of another store.
        what: whose argument it is, for messages.

    Raises:
        OptionError: it is not.
    """
    if is_remote(path):
        from trainer_hooks.checkpoint.remote import obstacle

        found = obstacle(path)
        if found:
            raise OptionError(f"{what}: {found}.")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is an address of another store: `memory://...`, `s3://...`."""
    text = os.fspath(path)
    return "://" in text and not text.startswith(_LOCAL)


def located(path: str | os.PathLike[str]) -> str:
    """Return `path` so that it means the same from everywhere: absolute, or the address it is."""
    text = os.fspath(path)
    if is_remote(text):
        return text.rstrip("/")
    return str(Path(text.removeprefix(_LOCAL)).absolute())


def joined(folder: str, *names: str) -> str:
    """Return the path of something in a folder."""
    if is_remote(folder):
        return "/".join([folder.rstrip("/"), *names])
    return str(Path(folder, *names))


def folder_of(path: str) -> str:
    """Return the folder that a file is in."""
    return path.rpartition("/")[0] if is_remote(path) else str(Path(path).parent)


def name_of(path: str) -> str:
    """Return a file's name without its folder."""
    return path.rpartition("/")[2] if is_remote(path) else Path(path).name


def exists(path: str) -> bool:
    """Return whether there is a file at `path`, or a link, wherever it leads."""
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        return remote.exists(path)
    return Path(path).exists() or Path(path).is_symlink()


def modified_at(path: str) -> int:
    """Return when a file was written, in nanoseconds since 1970; 0 if that cannot be told."""
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        return remote.modified_at(path)
    try:
        return Path(path).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def remove(path: str) -> None:
    """Remove a file, or a folder of several processes' parts, if it is there.

    Raises:
        OSError: it cannot be removed.
        CheckpointError: the store that it is in does not answer.
    """
    if is_remote(path):
        from trainer_hooks.checkpoint import remote

        remote.remove(path)
    elif _is_sealed(Path(path)):
        from trainer_hooks.checkpoint.placing import remove_folder

        remove_folder(Path(path))
    else:
        Path(path).unlink(missing_ok=True)


def is_inside(path: str, folder: str) -> bool:
    """Return whether a file lies in a folder, whichever way the two are written."""
    if is_remote(folder) or is_remote(path):
        return path.startswith(folder.rstrip("/") + "/")
    # the file itself may be a link: resolve its folder only
    file = Path(path)
    return (file.parent.resolve() / file.name).is_relative_to(Path(folder).resolve())


def _is_sealed(path: Path) -> bool:
    if not path.is_dir():
        return False
    from trainer_hooks.checkpoint.folder import is_folder

    return is_folder(path)


def files_in(folder: str, extension: str, depth: int = 0) -> list[str]:
    """Return the files of an extension in a folder, and down to `depth` folders below it.

    Unfinished files are left out, and so is what cannot be reached: there may be no such folder.
    """
    if is_remote(folder):
        from trainer_hooks.checkpoint import remote

        return remote.files_in(folder, extension, depth)
    return [
        str(path)
        for level in range(depth + 1)
        for path in Path(folder).glob(f"{'*/' * level}*{extension}")
        if not path.name.startswith(".") and (path.is_file() or _is_sealed(path))
    ]
