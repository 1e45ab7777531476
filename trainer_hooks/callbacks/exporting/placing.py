"""Where an exported file goes: to a path of this machine, or to another store."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint import (
    is_remote,
    joined,
    located,
    name_of,
    require_reachable,
    write_whole,
)
from trainer_hooks.errors import ExportError, OptionError, described

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

__all__ = ["check_object_store", "check_save_path", "place"]


def check_save_path(path: object, where: str) -> str:
    """Return a path of a file as it means the same from everywhere.

    Raises:
        OptionError: it is none, or the address of a store that cannot be reached from here.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or text.endswith("/"):
        raise OptionError(
            f"save_path {path!r} of {where}: it must be the path of a file. Pass such a path, or "
            "an address such as 's3://bucket/model.onnx'."
        )
    require_reachable(text, f"save_path {text!r} of {where}")
    return located(text if is_remote(text) else os.path.expanduser(text))  # noqa: PTH111 - not `./~`


def check_object_store(store: Any, where: str) -> Any:
    """Return where a copy goes: a folder's address, a file system of fsspec, or None.

    Raises:
        OptionError: it is none of them, or a store that cannot be reached from here.
    """
    if store is None or callable(getattr(store, "put_file", None)):
        return store
    if not isinstance(store, str) or not is_remote(store):
        raise OptionError(
            f"save_object_store {store!r} of {where}: it must be the address of a folder in "
            "another store, or a file system of fsspec. Pass one such as 's3://bucket/models'."
        )
    require_reachable(store, f"save_object_store {store!r} of {where}")
    return store


def place(source: Path, target: str, store: Any = None) -> None:
    """Put a file at its path or address, and a copy into a store, each whole or not at all.

    Raises:
        ExportError: it cannot be written; what was there before is untouched.
        CheckpointError: the store of an address does not answer.
    """
    if is_remote(target):
        _upload(source, target)
    else:
        _attempt(lambda: _write(source, Path(target)), target)
    if isinstance(store, str):
        _upload(source, joined(store, name_of(target)))
    elif store is not None:
        name = name_of(target)
        _attempt(lambda: _put(store, source, name), f"{name} in a {type(store).__name__}")


def _upload(source: Path, address: str) -> None:
    from trainer_hooks.checkpoint import upload

    upload(source, address, "export")


def _put(store: Any, source: Path, name: str) -> None:
    """Put a file into a file system under a passing name, and then give it its own."""
    part = f".{name}.part"
    try:
        store.put_file(str(source), part)
        store.mv(part, name)
    except BaseException:
        with suppress(Exception):  # the store that just failed
            store.rm_file(part)
        raise


def _write(source: Path, target: Path) -> None:
    def write(file: IO[bytes]) -> None:
        with source.open("rb") as content:
            shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())

    write_whole(target, write)


def _attempt(action: Callable[[], None], target: str) -> None:
    try:
        action()
    except Exception as error:  # a store raises errors of its own kinds
        raise ExportError(
            f"export {target!r} could not be written ({described(error)}); what was "
            "there before is untouched. Check the folder, the rights and the room."
        ) from error
