"""Fingerprints of batches, to compare a batch with one in an earlier process."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LastBatch", "differing_part", "fingerprint"]

_MAX_PARTS = 64
_MAX_NUMBERS = 2**18
_MAX_DEPTH = 4


class LastBatch:
    """The last batch that was fetched, so that a checkpoint can hold its fingerprint.

    Many training steps remove labels from the batch or add inputs to it. So a dict or list is
    copied, one level deep.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._restored_fingerprint: dict[str, list[int]] = {}

    def keep(self, batch: Any) -> None:
        """Keep a batch in place of the previous one."""
        self._batch = batch.copy() if type(batch) is dict or type(batch) is list else batch

    def forget(self, restored_fingerprint: dict[str, list[int]] | None = None) -> None:
        """Drop the batch; after a resume only its fingerprint is known."""
        self._batch, self._restored_fingerprint = None, restored_fingerprint or {}

    @property
    def fingerprint(self) -> dict[str, list[int]]:
        """Fingerprint of the batch; empty without one."""
        return self._restored_fingerprint if self._batch is None else fingerprint(self._batch)


def fingerprint(batch: Any) -> dict[str, list[int]]:
    """Return, by path, a version and a digest of each tensor, number and string in a nested batch.

    The version is the number of in-place changes of a tensor: after different changes by a training
    step, digests tell nothing about the data. Of a large tensor, a quarter of a million numbers are
    read.
    """
    parts = islice(_parts(batch, "batch", _MAX_DEPTH), _MAX_PARTS)
    return {path: [_version(part), crc32(_text(part).encode())] for path, part in parts}


def differing_part(saved: dict[str, list[int]], present: dict[str, list[int]]) -> str:
    """Return the path at which two batches differ, or an empty string if no difference shows.

    A part that only one of them has, or whose versions differ, is ignored.
    """
    for path, (version, digest) in saved.items():
        now = present.get(path)
        if now is not None and now[0] == version and now[1] != digest:
            return path
    return ""


def _parts(item: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the tensors, numbers and strings in dicts, lists and tuples, with their paths."""
    if isinstance(item, torch.Tensor):
        # Others have no plain bytes to read.
        if item.layout is torch.strided and not (
            item.is_meta or item.is_quantized or item.is_nested
        ):
            yield path, item.detach()
    elif isinstance(item, int | float | str):
        yield path, item
    elif isinstance(item, dict | list | tuple) and depth:
        items = item.items() if isinstance(item, dict) else enumerate(item)
        for key, part in items:
            yield from _parts(part, f"{path}[{key!r}]", depth - 1)


def _version(part: Any) -> int:
    """Return how often a tensor was changed in place, if torch counts it."""
    # Inference tensors have no version counter.
    if not isinstance(part, torch.Tensor) or part.is_inference():
        return 0
    return part._version  # noqa: SLF001 - the name torch gives it


def _text(part: Any) -> str:
    """Return a short text that very probably differs between different tensors or values."""
    if not isinstance(part, torch.Tensor):
        return repr(part)
    # Conjugated and negated views store other bytes than their values.
    flat = part.resolve_conj().resolve_neg().reshape(-1)
    flat = flat[:: flat.numel() // _MAX_NUMBERS + 1].cpu().contiguous()
    content = flat.view(torch.uint8).long()
    # Weighted by position, so that the same values in another order give another sum.
    checksum = int((content * torch.arange(1, len(content) + 1)).sum())
    return f"{part.dtype} {tuple(part.shape)} {checksum}"
