"""Differences of two checkpoints: each value by its path.

Not by deepdiff, which compares NumPy arrays: every tensor would have to be converted as a whole,
and bfloat16, quantized and sparse tensors cannot be. Here torch compares tensors in chunks, with a
tolerance, and counts the elements that differ.
"""

from __future__ import annotations

import math
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.checkpoint.inspection import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.checkpoint.inspection import CheckpointContents

_CHUNK = 1 << 22
"""Elements of two tensors that are compared at once, so that memory stays small."""

_KEYS = {
    "weights": {"state_dict", "extra_buffers"},
    "optimizers": {
        "optimizer_states", "lr_schedulers", "MixedPrecision", "gradients", "added_groups",
    },
    "callbacks": {"callbacks"},
    "loop": {
        "epoch", "global_step", "loops", "progress", "clock", "loop", "stop", "evaluated",
        "evaluators", "stream", "renewed", "sharding_seed", "slot", "modes", "inside_batch",
        "accumulate_grad_batches", "set_window",
    },
    "random numbers": {"rng", "generators", "val_generators"},
    "metrics": {"metrics", "metric_objects", "history"},
    "hyperparameters": {"hparams_name", "hyper_parameters", "datamodule_hyper_parameters"},
    "files": {"loggers"},
}  # fmt: skip
"""The keys of a checkpoint, and of `trainer_hooks` in it, that belong to each part."""

_PARTS = {key: part for part, keys in _KEYS.items() for key in keys}
_OTHERS = "others"

PARTS = (*_KEYS, _OTHERS)
"""The parts of a checkpoint that are compared, in the order in which they are told."""

_PLACE_NAMES = {"default_root_dir", "dirpath", "root", "run_id", "save_dir", "version"}
"""Names of values that say where a run writes, in the states of loggers and in a config."""

_EVENTS = "tfevents"
"""A part of the names of TensorBoard's files, which hold the time, the host and the process."""


class DifferenceType(StrEnum):
    """The ways in which two values differ."""

    ONLY_A = "only in A"
    ONLY_B = "only in B"
    TYPE = "type"
    DTYPE = "dtype"
    SHAPE = "shape"
    TENSOR = "tensor"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The distance up to which two numbers count as equal: `atol + rtol * |b|`."""

    atol: float = 0.0
    rtol: float = 0.0

    def takes(self, a: complex, b: complex) -> bool:
        """Return whether two numbers count as equal. NaN equals NaN."""
        if a == b or (a != a and b != b):  # NaN is the only number that differs from itself
            return True
        try:
            is_finite = math.isfinite(abs(a)) and math.isfinite(abs(b))
            return is_finite and abs(a - b) <= self.atol + self.rtol * abs(b)
        except OverflowError:  # an int that is too large for a float
            return False


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two checkpoints.

    Attributes:
        part: the part of a checkpoint, such as `"weights"`; `"others"` for a part without a name.
        path: the weight's name, or the keys and indices that lead to the value.
        how: the type of difference.
        a: the value in the first file; a tensor's shape or dtype where that differs.
        b: the value in the second file.
        max_abs: for two tensors, the greatest absolute difference; NaN where one of them is NaN.
        differing: for two tensors, the number of elements that differ.
        elements: for two tensors, the number of elements.
        is_place: whether the two tell alone where a run wrote: a path, a run's number, or the name
            of an event file.
    """

    part: str
    path: str
    how: DifferenceType
    a: Any = None
    b: Any = None
    max_abs: float = 0.0
    differing: int = 0
    elements: int = 0
    is_place: bool = False


def parts_in(contents: CheckpointContents) -> set[str]:
    """Return the parts that a checkpoint has."""
    keys = {*contents.data, *contents.trainer_hooks} - {"trainer_hooks"}
    return {_PARTS.get(str(key), _OTHERS) for key in keys}


def differences(
    a: CheckpointContents, b: CheckpointContents, tolerance: Tolerance
) -> Iterator[Difference]:
    """Yield the differences of two checkpoints in the order of their keys, without wall times."""
    a, b = _without_times(a), _without_times(b)
    for key in dict.fromkeys([*a.data, *b.data]):
        part = _PARTS.get(str(key), _OTHERS)
        if key == "trainer_hooks" and (a.trainer_hooks or b.trainer_hooks):
            yield from _trainer_hooks_differences(a.trainer_hooks, b.trainer_hooks, tolerance)
            continue
        walk = _Comparison(part, tolerance)
        if part == "weights":
            yield from walk.mappings(a.weights, b.weights, "", is_weights=True)
        elif part == "callbacks":  # one by one, even if one of the files has no callbacks at all
            yield from walk.mappings(a.callbacks, b.callbacks, str(key))
        elif key not in b.data:
            yield Difference(part, str(key), DifferenceType.ONLY_A, a.data[key])
        elif key not in a.data:
            yield Difference(part, str(key), DifferenceType.ONLY_B, None, b.data[key])
        else:
            yield from walk.values(a.data[key], b.data[key], str(key))


def _trainer_hooks_differences(
    a: dict[str, Any], b: dict[str, Any], tolerance: Tolerance
) -> Iterator[Difference]:
    """Yield the differences of the entries that only trainer_hooks saves."""
    for name in dict.fromkeys([*a, *b]):
        walk = _Comparison(_PARTS.get(str(name), _OTHERS), tolerance)
        one, other = ({name: entries[name]} if name in entries else {} for entries in (a, b))
        yield from walk.mappings(one, other, "trainer_hooks")


def _without_times(contents: CheckpointContents) -> CheckpointContents:
    """Return the contents without the wall times of the training."""
    if "wall_times" not in contents.trainer_hooks:
        return contents
    entries = {key: value for key, value in contents.trainer_hooks.items() if key != "wall_times"}
    return replace(contents, data={**contents.data, "trainer_hooks": entries})


class _Comparison:
    """A walk through two values side by side."""

    def __init__(self, part: str, tolerance: Tolerance) -> None:
        self._part = part
        self._tolerance = tolerance
        self._seen: dict[tuple[int, int], Any] = {}

    def values(self, a: Any, b: Any, path: str) -> Iterator[Difference]:
        """Yield the differences of two values."""
        a, b = _comparable(a), _comparable(b)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            yield from self._tensors(a, b, path)
        elif _is_number(a) and _is_number(b):
            if not self._tolerance.takes(a, b):
                yield self._of_values(a, b, path)
        elif _family(a) is not _family(b):
            yield Difference(self._part, path, DifferenceType.TYPE, a, b)
        elif isinstance(a, dict | list | tuple):
            if (id(a), id(b)) in self._seen:  # shared by several paths, or a cycle
                return
            self._seen[id(a), id(b)] = (a, b)  # referenced, so that the ids stay theirs
            if isinstance(a, dict):
                yield from self.mappings(a, b, path)
            else:
                yield from self._sequences(a, b, path)
        elif a != b:
            yield self._of_values(a, b, path)

    def _of_values(self, a: Any, b: Any, path: str) -> Difference:
        is_place = self._holds_places(path) and _tell_places(a, b, path)
        return Difference(self._part, path, DifferenceType.VALUE, a, b, is_place=is_place)

    def _holds_places(self, path: str) -> bool:
        """Return whether values here may say where a run writes; data and weights may not."""
        return self._part in ("callbacks", "files") or path.startswith("config.trainer.")

    def mappings(
        self, a: dict[Any, Any], b: dict[Any, Any], path: str, *, is_weights: bool = False
    ) -> Iterator[Difference]:
        """Yield the differences of two dicts, key by key."""
        partners = _same_files(a, b) if self._holds_places(path) else {}
        for key in dict.fromkeys([*a, *b]):
            place = str(key) if is_weights else below(path, key)
            if key in partners:
                other = partners[key]
                yield Difference(self._part, path, DifferenceType.VALUE, key, other, is_place=True)
                yield from self.values(a[key], b[other], place)
            elif key in partners.values():
                continue
            elif key not in b:
                yield Difference(self._part, place, DifferenceType.ONLY_A, a[key])
            elif key not in a:
                yield Difference(self._part, place, DifferenceType.ONLY_B, None, b[key])
            else:
                yield from self.values(a[key], b[key], place)

    def _sequences(self, a: Any, b: Any, path: str) -> Iterator[Difference]:
        for number in range(max(len(a), len(b))):
            place = f"{path}[{number}]"
            if number >= len(b):
                yield Difference(self._part, place, DifferenceType.ONLY_A, a[number])
            elif number >= len(a):
                yield Difference(self._part, place, DifferenceType.ONLY_B, None, b[number])
            else:
                yield from self.values(a[number], b[number], place)

    def _tensors(self, a: Tensor, b: Tensor, path: str) -> Iterator[Difference]:
        if a.shape != b.shape:
            yield Difference(self._part, path, DifferenceType.SHAPE, tuple(a.shape), tuple(b.shape))
        elif a.dtype != b.dtype:
            yield Difference(self._part, path, DifferenceType.DTYPE, dtype_name(a), dtype_name(b))
        else:
            most, count = _compare(_dense(a), _dense(b), self._tolerance)
            if count:
                yield Difference(
                    self._part, path, DifferenceType.TENSOR, a, b, most, count, elements=a.numel()
                )


def _tell_places(a: Any, b: Any, path: str) -> bool:
    """Return whether two values differ only in where a run wrote."""
    if path.rpartition(".")[2] in _PLACE_NAMES:
        return True
    return bool(_file_name(a)) and _file_name(a) == _file_name(b)


def _file_name(text: Any) -> str:
    """Return the name that a file keeps in another run's folder; empty for other texts.

    All folders have one name, and so have all event files.
    """
    if not isinstance(text, str):
        return ""
    if _EVENTS in text:
        return _EVENTS
    # a metric may be named train/loss: only whole paths and addresses are places
    if not (os.path.isabs(text) or "://" in text):  # noqa: PTH117 - Path has no addresses
        return ""
    name = text.rstrip("/").rpartition("/")[2]
    return name if PurePosixPath(name).suffix[1:].isalpha() else "/"


def _same_files(a: dict[Any, Any], b: dict[Any, Any]) -> dict[Any, Any]:
    """Return the keys of A that are files in A's folder, each with B's key of that file."""
    left: dict[str, list[Any]] = {}
    for key in b:
        if key not in a and _file_name(key):
            left.setdefault(_file_name(key), []).append(key)
    return {
        key: left[_file_name(key)].pop(0) for key in a if key not in b and left.get(_file_name(key))
    }


def below(path: str, key: Any) -> str:
    """Return the path of a dict's item: `path.key` if the key is an identifier."""
    if not isinstance(key, str):
        return f"{path}[{key!r}]"
    # a state key may be "Counter{'what': 'batches'}"
    return f"{path}.{key}" if key.isidentifier() else f'{path}["{key}"]'


def _comparable(value: Any) -> Any:
    """Return a value in a comparable form: NumPy's as torch's or Python's, a deque as a list."""
    if isinstance(value, deque):
        return list(value)
    if type(value).__module__ != "numpy":
        return value
    if value.ndim == 0:
        return value.item()
    if value.dtype.kind in "biufc":
        with suppress(TypeError):  # a dtype that torch lacks, such as long double
            # a copy: torch refuses negative strides, and warns of arrays that are read-only
            return torch.from_numpy(value.copy())
    # texts and dates, which no tensor holds
    return str(value.dtype), value.shape, value.tobytes()


def _is_number(value: Any) -> bool:
    # True equals 1, and a change of type would not be seen
    return isinstance(value, int | float | complex) and not isinstance(value, bool)


def _family(value: Any) -> type:
    """Return the type, with dict and Tensor standing for all their subclasses."""
    for family in (dict, Tensor):
        if isinstance(value, family):
            return family
    return type(value)


def _dense(tensor: Tensor) -> Tensor:
    plain = tensor.dequantize() if tensor.is_quantized else tensor
    return plain.detach().to_dense().resolve_conj().resolve_neg().reshape(-1)


def _compare(a: Tensor, b: Tensor, tolerance: Tolerance) -> tuple[float, int]:
    """Return the greatest difference of two flat tensors, and how many elements differ."""
    most, count = 0.0, 0
    for start in range(0, a.numel(), _CHUNK):
        one, other = a[start : start + _CHUNK], b[start : start + _CHUNK]
        same = _same(one, other, tolerance)
        differing = int((~same).sum())  # one copy to the host for each chunk
        if differing:
            count += differing
            # made wide first: before torch 2.10 some dtypes cannot be indexed
            gaps = (_wide(one) - _wide(other))[~same].abs()
            gap = float(gaps.max())
            # once NaN it stays so: no gap is greater than NaN
            most = gap if math.isnan(gap) or gap > most else most
    return most, count


def _same(a: Tensor, b: Tensor, tolerance: Tolerance) -> Tensor:
    """Return the mask of the elements that count as equal."""
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return torch.isclose(
            _wide(a), _wide(b), rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True
        )
    if tolerance.atol or tolerance.rtol:
        return torch.isclose(_wide(a), _wide(b), rtol=tolerance.rtol, atol=tolerance.atol)
    # exactly: float64 rounds integers beyond 2**53
    return a == b


def _wide(tensor: Tensor) -> Tensor:
    """Return the numbers as float64 or complex128, which hold all smaller dtypes exactly."""
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)
