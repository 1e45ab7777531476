"""Where pictures of memory go: files in a folder, here or in another store, and copies of them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.saving.saved_files import resolved_folder
from trainer_hooks.callbacks.saving.templates import (
    check_template,
    counts_of,
    fill_template,
    names_of,
    read_template,
    template_names,
)
from trainer_hooks.callbacks.watching.flame_graph import flame_graph
from trainer_hooks.checkpoint import files_in, is_remote, joined, name_of, require_reachable
from trainer_hooks.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.context import Trainer

__all__ = ["MemoryFiles", "pickled", "segment_flames", "segment_plot", "stack_flames", "trace_plot"]

_DEFAULT = "memory"
_SHOWN = 3


class MemoryFiles:
    """Name and write the files of one callback.

    Args:
        where: whose they are, for messages.
        folder: where; by default `memory` in the log folder.
        filename: template of what their names begin with.
        remote_file_name: template of the addresses of copies, likewise; None for no copies.
        overwrite: whether files that were there before the training may be written over.
        endings: what their names end with.

    Raises:
        OptionError: an argument is outside its rule.
    """

    def __init__(
        self,
        where: str,
        folder: Any,
        filename: Any,
        remote_file_name: Any,
        overwrite: Any,
        endings: Sequence[str],
    ) -> None:
        self._where = where
        self.folder = _check_folder(folder, where)
        self.filename = _check_filename(filename, where)
        self.remote_file_name = _check_remote(remote_file_name, where)
        self.overwrite: bool = check_choice("overwrite", overwrite, where, (True, False))
        self._endings = tuple(endings)

    def folder_in(self, trainer: Trainer) -> str:
        """Return the folder; nothing is created."""
        if self.folder is not None:
            return self.folder
        return resolved_folder(joined(trainer.log_dir or trainer.default_root_dir, _DEFAULT))

    def check_free(self, trainer: Trainer) -> None:
        """Make sure that a new training writes over no other's files.

        A resumed one may write over what the part of it that was cut has left.

        Raises:
            UsageError: there are such files, and they may not be written over.
        """
        if self.overwrite or not trainer.progress.is_fresh:
            return
        folder, depth = self.folder_in(trainer), self.filename.count("/")
        found = [
            path
            for ending in self._endings
            for path in files_in(folder, ending, depth)
            if read_template(self.filename + ending, "/".join(path.split("/")[-1 - depth :]))
            is not None
        ]
        if found:
            shown = ", ".join(repr(name_of(path)) for path in sorted(found)[:_SHOWN])
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise UsageError(
                f"files {shown}{more} in {folder!r}, the folder of {self._where}: this training "
                "would write over them, and did not write them. Choose another folder, move them "
                "away, or pass overwrite=True."
            )

    def write(self, trainer: Trainer, ending: str, content: bytes) -> str:
        """Write a file, whole or not at all, and return its path.

        Raises:
            OSError: it cannot be written.
            CheckpointError: the store of its folder does not answer.
        """
        name = self._filled(self.filename, trainer) + ending
        path = joined(self.folder_in(trainer), name)
        if is_remote(path):
            _upload(content, path)
            return path
        local = Path(path)
        local.parent.mkdir(parents=True, exist_ok=True)
        unfinished = local.with_name(f".{local.name}.{os.getpid()}.tmp")
        try:
            unfinished.write_bytes(content)
            unfinished.replace(local)
        finally:
            unfinished.unlink(missing_ok=True)
        log.info("%s: wrote %s", self._where, path)
        return path

    def copy(self, trainer: Trainer, ending: str, content: bytes) -> str | None:
        """Put a copy where copies go, and return its address; None if none is wanted.

        Raises:
            CheckpointError: the store does not answer.
        """
        if self.remote_file_name is None:
            return None
        address = self._filled(self.remote_file_name, trainer) + ending
        _upload(content, address)
        log.info("%s: uploaded %s", self._where, address)
        return address

    def _filled(self, template: str, trainer: Trainer) -> str:
        values = counts_of(trainer)
        if not set(template_names(template)) <= set(values):
            values = names_of(trainer)  # which may need memory that there is none of
        return fill_template(template, values, "=", insert=False)


def pickled(snapshot: dict[str, Any]) -> bytes:
    """Return a snapshot as https://pytorch.org/memory_viz takes it."""
    return pickle.dumps(snapshot)


def trace_plot(snapshot: dict[str, Any]) -> bytes:
    """Return a page of what was allocated over time."""
    return _page("trace_plot", snapshot)


def segment_plot(snapshot: dict[str, Any]) -> bytes:
    """Return a page of how the segments were filled over time."""
    return _page("segment_plot", snapshot)


def segment_flames(snapshot: dict[str, Any]) -> bytes:
    """Return a flame graph of what is allocated, by segment and stack."""
    return _flames("segments", snapshot, "Memory by segment")


def stack_flames(snapshot: dict[str, Any]) -> bytes:
    """Return a flame graph of what is allocated, by stack."""
    return _flames("memory", snapshot, "Memory by stack")


def _page(kind: str, snapshot: dict[str, Any]) -> bytes:
    from torch.cuda import _memory_viz

    plot: Callable[[dict[str, Any]], str] = getattr(_memory_viz, kind)
    return plot(snapshot).encode()


def _flames(kind: str, snapshot: dict[str, Any], title: str) -> bytes:
    from torch.cuda import _memory_viz

    # torch itself would fetch a script from the network, which draws them
    draw: Any = getattr(_memory_viz, kind)
    drawn: str = draw(snapshot, format_flamegraph=lambda stacks: flame_graph(stacks, title))
    return drawn.encode()


def _upload(content: bytes, address: str) -> None:
    from trainer_hooks.checkpoint import upload

    with TemporaryDirectory(prefix="trainer_hooks-") as folder:
        local = Path(folder, "content")
        local.write_bytes(content)
        upload(local, address)


def _check_folder(folder: Any, where: str) -> str | None:
    if folder is None:
        return None
    path = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise OptionError(
            f"folder {folder!r} of {where}: it must be the path of a folder. Pass one, an address "
            f"such as 's3://bucket/run', or None for {_DEFAULT!r} in the log folder."
        )
    require_reachable(path, f"folder {path!r} of {where}")
    return resolved_folder(path)


def _check_filename(filename: Any, where: str) -> str:
    template = check_template(filename, where) if isinstance(filename, str) else "/"
    if Path(template).is_absolute() or ".." in Path(template).parts or template.endswith("/"):
        raise OptionError(
            f"filename {filename!r} of {where}: it must be the beginning of a name inside the "
            "folder. Pass the folder as folder=... and only the name as filename=..."
        )
    return template


def _check_remote(address: Any, where: str) -> str | None:
    if address is None:
        return None
    if not isinstance(address, str) or not is_remote(address):
        raise OptionError(
            f"remote_file_name {address!r} of {where}: it must be an address in another store. "
            "Pass one such as 's3://bucket/rank{rank}', or None for no copies."
        )
    require_reachable(address, f"remote_file_name {address!r} of {where}")
    return check_template(address, where, "remote_file_name")
