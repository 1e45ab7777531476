"""Samples in a run's folder: pictures and texts with captions, for the report.

The convention is told in docs/run-report.md: `samples/` holds pictures, and `samples/samples.json`
a list of what to say of them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal import number, text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Sample", "samples_of"]

_FOLDER, _INDEX = "samples", "samples.json"
_MOST, _MOST_BYTES = 48, 16_000_000
_LONGEST_INDEX = 10_000_000
_LONGEST_TEXT = 4000
# Python 3.13 has no imghdr, and Pillow would take apart what is only to be shown
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
_SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture or a text.

    Attributes:
        caption: what is said of it.
        address: the picture as a `data:` address; empty for a text.
        text: the text, or an empty string.
    """

    caption: str
    address: str = ""
    text: str = ""


def samples_of(folder: Path, notes: list[str]) -> list[Sample]:
    """Return the samples of a run, those of the index first; what is left out is noted."""
    root = folder / _FOLDER
    if not root.is_dir():
        return []
    listed = _index(root, notes)
    named = {text(entry, "file") for entry in listed}
    others = sorted(path.name for path in root.iterdir() if path.suffix.lower() in _SUFFIXES)
    entries = [*listed, *({"file": name, "caption": name} for name in others if name not in named)]
    samples: list[Sample] = []
    room = _MOST_BYTES
    for entry in entries[:_MOST]:
        sample = _sample(root, entry, room, notes)
        if sample is not None:
            room -= len(sample.address)
            samples.append(sample)
    if len(entries) > _MOST:
        notes.append(f"{root}: of {len(entries):,} samples the first {_MOST} are shown.")
    return samples


def _index(root: Path, notes: list[str]) -> list[dict[str, Any]]:
    path = root / _INDEX
    if not path.is_file():
        return []
    try:
        if path.stat().st_size > _LONGEST_INDEX:
            raise ValueError(f"it has over {_LONGEST_INDEX:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, list):
            raise ValueError("it is no list")  # noqa: TRY004 - told as what a file holds
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path} could not be read: {error}.")
        return []
    return [entry for entry in found if isinstance(entry, dict)]


def _sample(root: Path, entry: dict[str, Any], room: int, notes: list[str]) -> Sample | None:
    caption = _caption(entry)
    name = text(entry, "file")
    if not name:
        told = text(entry, "text")
        return Sample(caption, text=told[:_LONGEST_TEXT]) if told else None
    path = (root / name).resolve()
    reason = ""
    try:
        if not path.is_relative_to(root.resolve()):
            reason = "it is outside of that folder"
        elif path.stat().st_size * 4 // 3 > room:
            reason = f"the pictures of a page may take {_MOST_BYTES:,} bytes together"
        else:
            data = path.read_bytes()
            kind = next((kind for head, kind in _KINDS.items() if data.startswith(head)), "")
            reason = "" if kind else "it is no PNG, JPEG, GIF or WebP"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        notes.append(f"{root / name} is not shown: {reason}.")
        return None
    address = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return Sample(caption, address, text(entry, "text")[:_LONGEST_TEXT])


def _caption(entry: dict[str, Any]) -> str:
    parts = [text(entry, "caption") or text(entry, "file")]
    parts += [f"{name} {number(entry, name):g}" for name in ("epoch", "step") if name in entry]
    return ", ".join(filter(None, parts))
