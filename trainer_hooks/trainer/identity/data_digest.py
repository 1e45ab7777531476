"""A digest of the data of a training, by which one fold or split is told from another."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks.data.loaders import CombinedLoader
from trainer_hooks.runtime.nested_tensors import bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGEST_SIZE = 8
_MAX_BYTES = 2**26
_MAX_PARTS, _MAX_ITEMS = 100_000, 10_000
_MAX_DEPTH = 8
_CHUNKS, _CHUNK = 1024, 2**14
_HOLDERS = (DataLoader, Dataset, Sampler, CombinedLoader)
_PLAIN = (bool, int, float, complex, bytes, str, PurePath)
_PASSING_WORDS = (
    *("batch", "cache", "count", "device", "dir", "epoch", "path", "pid", "rank", "root"),
    *("step", "time", "worker"),
)
"""Words in the name of an attribute whose value may differ in a restart, or grow in a training."""


def data_digest(*sources: Any) -> str:
    """Return a digest of the data that loaders and data modules hold in memory, "" if they do not.

    It covers tensors, arrays, frames, and lists of numbers and texts, such as the indices of a
    subset or sampler and the names of files, wherever data sets hold them; and numbers and texts of
    data sets and data modules, such as that of a fold. Those of loaders, such as the batch size,
    may differ in a restart. No sample is loaded.

    Args:
        sources: loaders, batches, data modules, or nested lists and dicts of them; None for none.
    """
    digest = _DataDigest()
    for source in sources:
        digest.add(source)
    return digest.text


class _DataDigest:
    """The digest so far, and the bytes and parts that may still be read for it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        self._is_empty = True
        self._bytes_left, self._parts_left = _MAX_BYTES, _MAX_PARTS
        # the values themselves: the id of one that is gone may be another's
        self._seen: dict[int, Any] = {}

    @property
    def text(self) -> str:
        """The digest as hexadecimal digits; empty if nothing was added."""
        return "" if self._is_empty else self._hash.hexdigest()

    def add(self, value: Any, depth: int = 0) -> None:
        """Add a value with all that it holds, as far as it is data."""
        self._parts_left -= 1
        if depth > _MAX_DEPTH or self._parts_left < 0:
            return
        if isinstance(value, torch.Tensor):
            self._add_tensor(value)
        elif isinstance(value, class_if_loaded("numpy", "ndarray")):
            self._add_array(value)
        elif isinstance(value, PurePath | str):
            # the folder of the data may be another at each start, as that of a cluster's job
            self._update(PurePath(value).name)
        elif isinstance(value, bool | int | float | complex | range | bytes):
            self._update(repr(value))
        elif id(value) not in self._seen:
            self._seen[id(value)] = value
            self._add_parts(value, depth + 1)

    def _add_parts(self, value: Any, depth: int) -> None:
        """Add the items of a list or dict, the attributes of a data set, the cells of a frame."""
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not _is_passing(key, item):
                    self.add(key, depth)
                    self.add(item, depth)
        elif isinstance(value, list | tuple):
            self._add_items(value, depth)
        # a data module of any framework, too
        elif isinstance(value, _HOLDERS) or callable(getattr(value, "prepare_data", None)):
            is_loader = isinstance(value, DataLoader | Sampler | CombinedLoader)
            for name, item in sorted(getattr(value, "__dict__", {}).items()):
                if not (isinstance(item, _PLAIN) and (is_loader or _is_passing(name, item))):
                    self.add(item, depth)
        elif isinstance(getattr(value, "_fingerprint", None), str):  # of a Hugging Face data set
            self._update(value._fingerprint)  # noqa: SLF001 - documented there
        elif callable(getattr(type(value), "to_numpy", None)):  # a frame of pandas or polars
            self.add(value.to_numpy(), depth)

    def _add_items(self, items: Sequence[Any], depth: int) -> None:
        if not items:
            return
        self._update(str(len(items)))
        try:
            # indices of subsets may be many, and are read all: two folds may begin alike
            self._update(array("q", items).tobytes())
        except (TypeError, OverflowError):
            for item in items[:: len(items) // _MAX_ITEMS + 1]:
                self.add(item, depth)

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.is_nested:  # which has no shape of numbers
            self._add_items(tensor.unbind(), _MAX_DEPTH)
            return
        self._update(f"{tensor.dtype} {tuple(tensor.shape)}")
        if tensor.is_quantized:
            tensor = tensor.int_repr()
        is_plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
        if not is_plain or tensor.is_meta:
            return
        if tensor.is_contiguous():
            flat = tensor.detach().reshape(-1)
            for part in self._chosen(flat, tensor.element_size()):
                self._update(bytes_of(part.cpu()).numpy().data)
        elif tensor.numel() * tensor.element_size() < _MAX_BYTES:
            self._add_tensor(tensor.detach().contiguous())

    def _add_array(self, cells: Any) -> None:
        self._update(f"{cells.dtype} {cells.shape}")
        if cells.dtype.hasobject:
            self._add_items(cells.reshape(-1).tolist(), _MAX_DEPTH)
        elif cells.flags.c_contiguous or cells.nbytes < _MAX_BYTES:
            for part in self._chosen(cells.reshape(-1), cells.itemsize):
                self._update(part.tobytes())

    def _chosen(self, flat: Any, size: int) -> list[Any]:
        """Return the parts of a flat tensor or array to read: all of it, or chunks of a large one.

        Chunks, and not every n-th number: a file that is mapped into memory is read by pages.
        """
        if len(flat) * size <= self._bytes_left:
            self._bytes_left -= len(flat) * size
            return [flat]
        length, step = max(1, _CHUNK // size), max(1, len(flat) // _CHUNKS)
        return [flat[start : start + min(length, step)] for start in range(0, len(flat), step)]

    def _update(self, content: Any) -> None:
        data = content.encode(errors="replace") if isinstance(content, str) else content
        # with its length: two texts in a row are not their concatenation
        self._hash.update(len(data).to_bytes(8, "little"))
        self._hash.update(data)
        self._is_empty = False


def _is_passing(name: object, value: object) -> bool:
    """Return whether a number or text may be another one in a restart of the same training."""
    if not isinstance(value, _PLAIN) or not isinstance(name, str):
        return False
    is_path = isinstance(value, PurePath) or (isinstance(value, str) and os.sep in value)
    is_kept = isinstance(value, int | str) and not is_path
    return not is_kept or any(word in name.lower() for word in _PASSING_WORDS)
