"""Fingerprints of batches: enough of one to tell, in another process, whether it is the same."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LastBatch", "differing_part", "fingerprint"]

_MOST_PARTS = 64
_MOST_NUMBERS = 2**18
_DEPTH = 4


class LastBatch:
    """Keeps the last batch that was taken, so that a checkpoint can say what it was.

    Many a training step takes labels out of its batch, or puts prepared inputs into it. So a dict
    or list is copied, without what is in it.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._print: dict[str, list[int]] = {}

    def keep(self, batch: Any) -> None:
        """Keep a batch in place of the one before."""
        self._batch = batch.copy() if type(batch) is dict or type(batch) is list else batch

    def forget(self, fingerprint_before: dict[str, list[int]] | None = None) -> None:
        """Forget the batch; after a resume, a fingerprint is all that is known of it."""
        self._batch, self._print = None, fingerprint_before or {}

    @property
    def fingerprint(self) -> dict[str, list[int]]:
        """What tells the batch from another; empty if there is none."""
        return self._print if self._batch is None else fingerprint(self._batch)


def fingerprint(batch: Any) -> dict[str, list[int]]:
    """Return a version and a digest of each tensor, number and string in a nested batch.

    The version is how often a tensor was changed in place: what training did to it is no news of
    where it came from. Of a large tensor, a quarter of a million numbers are looked at.
    """
    parts = islice(_parts(batch, "batch", _DEPTH), _MOST_PARTS)
    return {path: [_version(part), crc32(_text(part).encode())] for path, part in parts}


def differing_part(saved: dict[str, list[int]], present: dict[str, list[int]]) -> str:
    """Return where two batches differ, or an empty string if that cannot be seen.

    A part that only one of them has, or that was changed in place as it was not in the other, tells
    nothing.
    """
    for path, (version, digest) in saved.items():
        now = present.get(path)
        if now is not None and now[0] == version and now[1] != digest:
            return path
    return ""


def _parts(item: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Give the tensors, numbers and strings in dicts, lists and tuples, with their places."""
    if isinstance(item, torch.Tensor):
        if item.layout is torch.strided and not (item.is_meta or item.is_quantized):
            yield path, item.detach()
    elif isinstance(item, int | float | str):
        yield path, item
    elif isinstance(item, dict | list | tuple) and depth:
        places = item.items() if isinstance(item, dict) else enumerate(item)
        for place, part in places:
            yield from _parts(part, f"{path}[{place!r}]", depth - 1)


def _version(part: Any) -> int:
    """Return how often a tensor was changed in place, as far as torch counts it."""
    if not isinstance(part, torch.Tensor) or part.is_inference():
        return 0
    return part._version  # noqa: SLF001 - the name torch gives it


def _text(part: Any) -> str:
    """Return a short text that is another one, very probably, for another tensor or value."""
    if not isinstance(part, torch.Tensor):
        return repr(part)
    flat = part.resolve_conj().resolve_neg().reshape(-1)
    flat = flat[:: flat.numel() // _MOST_NUMBERS + 1].cpu().contiguous()
    content = flat.view(torch.uint8).long()
    total = int((content * torch.arange(1, len(content) + 1)).sum())
    return f"{part.dtype} {tuple(part.shape)} {total}"
