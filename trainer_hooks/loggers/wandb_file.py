"""What Weights & Biases has written to this machine: the metrics of a run, read from its files."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["rows_of_run"]

_BLOCK = 32768
_FILE_HEADER = 7
_RECORD_HEADER = struct.Struct("<IHB")  # checksum, length, part
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def rows_of_run(folder: Path, run_id: str) -> Iterator[dict[str, Any]]:
    """Give the rows that a run has logged, those of the process that began it first.

    Args:
        folder: the `wandb` folder.
        run_id: the run.
    """
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    for path in sorted(folder.glob(f"*run-*-{run_id}/run-{run_id}.wandb")):
        for content in _records(path.read_bytes()):
            record = Record.FromString(content)
            if record.WhichOneof("record_type") == "history":
                yield _row(record.history.item)


def _row(items: Iterable[Any]) -> dict[str, Any]:
    """Return a row; what was logged as an object of several values, as an image is, as a dict."""
    row: dict[str, Any] = {}
    for item in items:
        value = json.loads(item.value_json)
        first, *below = item.nested_key or [item.key]
        if below:
            row.setdefault(first, {})[".".join(below)] = value
        else:
            row[first] = value
    return row


def _records(content: bytes) -> Iterator[bytes]:
    """Give the records of a file; one that was cut off at the end is left out.

    The format is that of LevelDB's log: blocks of 32 KiB, in which a record has one part or several
    that stand in blocks one after another.
    """
    # wandb ships no reader for Python any more
    place, parts = _FILE_HEADER, b""
    while place + _RECORD_HEADER.size <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _RECORD_HEADER.size:
            place += left
            continue
        _, length, part = _RECORD_HEADER.unpack_from(content, place)
        place += _RECORD_HEADER.size
        piece = content[place : place + length]
        place += length
        if part not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or len(piece) < length:
            return
        parts = piece if part in (_WHOLE, _FIRST) else parts + piece
        if part in (_WHOLE, _LAST):
            yield parts
