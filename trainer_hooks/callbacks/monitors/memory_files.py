"""Write the files of memory snapshots: pickles, plots, flame graphs, and their remote copies."""

from __future__ import annotations

import os
import pickle
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from trainer_hooks._log import log
from trainer_hooks._system import path_end
from trainer_hooks._text import first_few
from trainer_hooks.callbacks.saving.file_names import (
    check_template,
    fill_template,
    read_template,
    template_counts,
    template_names,
    template_values,
)
from trainer_hooks.callbacks.saving.saver_options import resolved_folder
from trainer_hooks.checkpoint.paths import (
    file_name,
    files_in,
    is_remote,
    join_path,
    open_whole,
    require_reachable,
)
from trainer_hooks.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trainer_hooks.context.context import Trainer

# in pixels of the flame graph
_WIDTH = 1200.0
_ROW_HEIGHT = 16
_MIN_FRAME_WIDTH = 0.3
_CHARACTER_WIDTH = 6.6
_HEAD_HEIGHT = 24


@dataclass(slots=True)
class _Frame:
    """A frame of the flame graph: its name, its amount, and the frames that it called."""

    name: str
    amount: int = 0
    calls: dict[str, _Frame] = field(default_factory=dict)


def flame_graph(stacks: str, title: str) -> str:
    """Draw call stacks as a flame graph in SVG.

    A frame is as wide as its amount and stands on the frame that called it. A tooltip shows its
    name, amount and share. Frames that are too thin to be seen are left out.

    Args:
        stacks: lines of frame names joined by `;`, the outermost first, a space and the bytes.
        title: the title.
    """
    root = _Frame("all")
    for line in stacks.splitlines():
        names, _, amount = line.rpartition(" ")
        if names:
            _add_stack(root, names.split(";"), int(amount))
    boxes = list(_layout(root, 0.0, 0, _WIDTH / root.amount if root.amount else 0.0))
    deepest = max(depth for _, _, depth, _ in boxes)
    height = _HEAD_HEIGHT + (deepest + 1) * _ROW_HEIGHT
    drawings = [
        _draw_frame(
            frame, left, height - (depth + 1) * _ROW_HEIGHT, width, f"{frame.amount} bytes", root
        )
        for frame, left, depth, width in boxes
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:.0f}" height="{height}" '
        f'viewBox="0 0 {_WIDTH:.0f} {height}" font-family="monospace" font-size="11">'
    )
    caption = f'<text x="4" y="15" font-size="13">{escape(title)}: {root.amount} bytes</text>'
    return "\n".join([head, caption, *drawings, "</svg>", ""])


def _add_stack(root: _Frame, names: list[str], amount: int) -> None:
    frame = root
    frame.amount += amount
    for name in names:
        frame = frame.calls.setdefault(name, _Frame(name))
        frame.amount += amount


def _layout(
    root: _Frame, left: float, depth: int, scale: float
) -> Iterator[tuple[_Frame, float, int, float]]:
    """Yield the visible frames, each with its left edge, depth and width."""
    pending = [(root, left, depth)]  # no recursion: stacks may be deeper than Python's limit
    while pending:
        frame, left, depth = pending.pop()
        width = frame.amount * scale
        yield frame, left, depth, width
        for call in sorted(frame.calls.values(), key=lambda call: call.name):
            if call.amount * scale >= _MIN_FRAME_WIDTH:
                pending.append((call, left, depth + 1))
            # also past a frame that is too narrow to be drawn
            left += call.amount * scale


def _draw_frame(
    frame: _Frame, left: float, top: int, width: float, amount_text: str, root: _Frame
) -> str:
    """Draw a frame as a box with its name, cut off where the box ends."""
    share = frame.amount / root.amount if root.amount else 0.0
    # a colour that is the same in every picture, unlike `hash`
    shade = zlib.crc32(frame.name.encode())
    colour = f"rgb({205 + shade % 50},{90 + shade // 50 % 120},{shade // 6000 % 60})"
    max_length = int((width - 4) / _CHARACTER_WIDTH)
    label = (
        frame.name if len(frame.name) <= max_length else f"{frame.name[: max(0, max_length - 2)]}.."
    )
    text = (
        f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(label)}</text>' if max_length > 3 else ""
    )
    return (
        f"<g><title>{escape(frame.name)} ({amount_text}, {share:.1%})</title>"
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_ROW_HEIGHT - 1}" '
        f'fill="{colour}"/>'
        f"{text}</g>"
    )


_DEFAULT_FOLDER = "memory"
_MAX_SHOWN = 3


class MemoryFiles:
    """Names and writes the files of one callback.

    Args:
        where: the name of the callback, for messages.
        folder: the folder; by default `memory` in the log folder.
        filename: template of the beginning of the files' names.
        remote_file_name: template of the beginning of the copies' addresses; None for no copies.
        overwrite: whether files from before the training may be overwritten.
        endings: the endings of the files' names.

    Raises:
        OptionError: an argument is outside its rule.
    """

    def __init__(
        self,
        where: str,
        folder: Any,
        filename: Any,
        remote_file_name: Any,
        overwrite: bool,
        endings: Sequence[str],
    ) -> None:
        self._where = where
        self.folder = _check_folder(folder, where)
        self.filename = _check_filename(filename, where)
        self.remote_file_name = _check_remote(remote_file_name, where)
        self.overwrite = overwrite
        self._endings = tuple(endings)

    def folder_in(self, trainer: Trainer) -> str:
        """Return the folder of a run's files; do not create it."""
        if self.folder is not None:
            return self.folder
        return resolved_folder(
            join_path(trainer.log_dir or trainer.default_root_dir, _DEFAULT_FOLDER)
        )

    def check_free(self, trainer: Trainer) -> None:
        """Check that a new training would overwrite no other training's files.

        A resumed training may overwrite the files of its own first part.

        Raises:
            UsageError: there are such files, and `overwrite` is False.
        """
        if self.overwrite or not trainer.progress.is_new_training:
            return
        folder, depth = self.folder_in(trainer), self.filename.count("/")
        existing = [
            path
            for ending in self._endings
            for path in files_in(folder, ending, depth)
            if read_template(self.filename + ending, path_end(path, 1 + depth)) is not None
        ]
        if existing:
            shown = first_few([repr(file_name(path)) for path in sorted(existing)], _MAX_SHOWN)
            raise UsageError(
                f"files {shown} in {folder!r}, the folder of {self._where}: this training "
                "would write over them, and did not write them. Choose another folder, move them "
                "away, or pass overwrite=True."
            )

    def write(self, trainer: Trainer, ending: str, content: bytes) -> str:
        """Write a file, completely or not at all, and return its path.

        Raises:
            OSError: it cannot be written.
            CheckpointError: the store of its folder does not answer.
        """
        name = self._fill(self.filename, trainer) + ending
        path = join_path(self.folder_in(trainer), name)
        with open_whole(path) as file:
            file.write(content)
        log.info("%s: wrote %s", self._where, path)
        return path

    def copy(self, trainer: Trainer, ending: str, content: bytes) -> str | None:
        """Upload a copy and return its address; None if no copies are wanted.

        Raises:
            CheckpointError: the store does not answer.
        """
        if self.remote_file_name is None:
            return None
        address = self._fill(self.remote_file_name, trainer) + ending
        with open_whole(address) as file:
            file.write(content)
        log.info("%s: uploaded %s", self._where, address)
        return address

    def _fill(self, template: str, trainer: Trainer) -> str:
        values = template_counts(trainer)
        if not set(template_names(template)) <= set(values):
            # metrics are copied from the device, which may fail when its memory has run out
            values = template_values(trainer)
        return fill_template(template, values, "=", insert=False)


def snapshot_pickle(snapshot: dict[str, Any]) -> bytes:
    """Pickle a snapshot for https://pytorch.org/memory_viz."""
    return pickle.dumps(snapshot)


def trace_plot(snapshot: dict[str, Any]) -> bytes:
    """Return an HTML page with a plot of the allocations over time."""
    return _plot_page("trace_plot", snapshot)


def segment_plot(snapshot: dict[str, Any]) -> bytes:
    """Return an HTML page with a plot of the use of each segment over time."""
    return _plot_page("segment_plot", snapshot)


def segment_flame_graph(snapshot: dict[str, Any]) -> bytes:
    """Return a flame graph of the allocated memory, by segment and call stack."""
    return _flame_graph_of("segments", snapshot, "Memory by segment")


def stack_flame_graph(snapshot: dict[str, Any]) -> bytes:
    """Return a flame graph of the allocated memory, by call stack."""
    return _flame_graph_of("memory", snapshot, "Memory by stack")


def _plot_page(kind: str, snapshot: dict[str, Any]) -> bytes:
    from torch.cuda import _memory_viz

    plot: Callable[[dict[str, Any]], str] = getattr(_memory_viz, kind)
    return plot(snapshot).encode()


def _flame_graph_of(kind: str, snapshot: dict[str, Any], title: str) -> bytes:
    from torch.cuda import _memory_viz

    # torch's own drawing would fetch a script from the network
    draw: Any = getattr(_memory_viz, kind)
    svg: str = draw(snapshot, format_flamegraph=lambda stacks: flame_graph(stacks, title))
    return svg.encode()


def _check_folder(folder: Any, where: str) -> str | None:
    if folder is None:
        return None
    path = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise OptionError(
            f"folder {folder!r} of {where}: it must be the path of a folder. Pass one, an address "
            f"such as 's3://bucket/run', or None for {_DEFAULT_FOLDER!r} in the log folder."
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
