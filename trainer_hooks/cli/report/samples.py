"""Read the samples in a run's folder: pictures and texts with captions, for the report.

docs/run-report.md has the convention: `samples/` holds pictures, and `samples/samples.json` a list
of their captions, and of texts.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal_reader import number, text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Sample", "read_samples"]

_FOLDER, _INDEX = "samples", "samples.json"
_MAX_SAMPLES, _MAX_BYTES = 48, 16_000_000
_MAX_INDEX_BYTES = 10_000_000
_MAX_TEXT_LENGTH = 4000
# by their first bytes: Python 3.13 has no imghdr, and Pillow would decode the whole picture
_MEDIA_TYPES = {
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
        caption: its caption, with epoch and step if the index has them.
        address: the picture as a `data:` address; empty for a text.
        text: the text, or an empty string.
    """

    caption: str
    address: str = ""
    text: str = ""


def read_samples(folder: Path, notes: list[str]) -> list[Sample]:
    """Read the samples of a run, those of the index first.

    Args:
        folder: the run's folder.
        notes: a list to which the reason is added for each sample that is left out.
    """
    root = folder / _FOLDER
    if not root.is_dir():
        return []
    entries = _read_index(root, notes)
    indexed = {text(entry, "file") for entry in entries}
    names = sorted(path.name for path in root.iterdir() if path.suffix.lower() in _SUFFIXES)
    entries += [{"file": name, "caption": name} for name in names if name not in indexed]
    samples: list[Sample] = []
    bytes_left = _MAX_BYTES
    for entry in entries[:_MAX_SAMPLES]:
        sample = _read_sample(root, entry, bytes_left, notes)
        if sample is not None:
            bytes_left -= len(sample.address)
            samples.append(sample)
    if len(entries) > _MAX_SAMPLES:
        notes.append(f"{root}: of {len(entries):,} samples the first {_MAX_SAMPLES} are shown.")
    return samples


def _read_index(root: Path, notes: list[str]) -> list[dict[str, Any]]:
    path = root / _INDEX
    if not path.is_file():
        return []
    try:
        if path.stat().st_size > _MAX_INDEX_BYTES:
            raise ValueError(f"it has over {_MAX_INDEX_BYTES:,} bytes")
        entries = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(entries, list):
            raise ValueError("it is no list")  # noqa: TRY004 - caught below with other bad content
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path} could not be read: {error}.")
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def _read_sample(
    root: Path, entry: dict[str, Any], bytes_left: int, notes: list[str]
) -> Sample | None:
    """Read the sample of an entry of the index; None, with a note, if it cannot be shown."""
    caption = _caption(entry)
    name = text(entry, "file")
    if not name:
        content = text(entry, "text")
        return Sample(caption, text=content[:_MAX_TEXT_LENGTH]) if content else None
    path = (root / name).resolve()
    reason = ""
    try:
        # the page may be sent to others: no entry may pull in a file from elsewhere
        if not path.is_relative_to(root.resolve()):
            reason = "it is outside of that folder"
        elif path.stat().st_size * 4 // 3 > bytes_left:  # base64 makes four bytes of three
            reason = f"the pictures of a page may take {_MAX_BYTES:,} bytes together"
        else:
            data = path.read_bytes()
            media_type = next(
                (kind for start, kind in _MEDIA_TYPES.items() if data.startswith(start)), ""
            )
            reason = "" if media_type else "it is no PNG, JPEG, GIF or WebP"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        notes.append(f"{root / name} is not shown: {reason}.")
        return None
    address = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return Sample(caption, address, text(entry, "text")[:_MAX_TEXT_LENGTH])


def _caption(entry: dict[str, Any]) -> str:
    parts = [text(entry, "caption") or text(entry, "file")]
    parts += [f"{name} {number(entry, name):g}" for name in ("epoch", "step") if name in entry]
    return ", ".join(filter(None, parts))
