"""Single values that torch does not know: taken apart into plain data, and put together again."""

from __future__ import annotations

import datetime as dt
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CODECS", "FACTORIES", "Codec", "codec_of", "is_special"]

_HUGE = 2000
"""Bits from which an int has no place in a file that torch opens safely."""

FACTORIES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset)
}
"""What a defaultdict may make its missing values with."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of value is written.

    Attributes:
        name: what the kind is called in a file.
        take_apart: returns a value's parts, a list of values that can be encoded themselves; raises
            ValueError with the rule for one that cannot be written.
        put_together: makes the value from its parts.
    """

    name: str
    take_apart: Callable[[Any], list[Any]]
    put_together: Callable[..., Any]


def codec_of(value: object) -> Codec | None:
    """Return how a value is written that torch does not know, or None if it cannot be.

    NumPy is not imported for it: a value of NumPy's is known by the module of its type.
    """
    kind = type(value)
    if kind.__module__ == "numpy":
        return _numpy_codec(value)
    return _BY_TYPE.get(kind)


def is_special(value: object) -> bool:
    """Return whether torch's safe loading does not know a value whose type it does know."""
    if type(value) is int:
        return value.bit_length() > _HUGE
    return type(value) in (bytes, bytearray) and not value


# --- dates and paths ---


def _date_parts(value: dt.date) -> list[Any]:
    return [value.year, value.month, value.day]


def _time_parts(value: dt.time | dt.datetime) -> list[Any]:
    return [
        value.hour, value.minute, value.second, value.microsecond, value.tzinfo, value.fold,
    ]  # fmt: skip


def _time(hour: int, minute: int, second: int, micro: int, zone: Any, fold: int) -> dt.time:
    return dt.time(hour, minute, second, micro, zone, fold=fold)


def _datetime(*parts: Any) -> dt.datetime:
    return dt.datetime(*parts[:-1], fold=parts[-1])  # noqa: DTZ001 - its zone is among the parts


def _zone_parts(value: dt.timezone) -> list[Any]:
    offset, name = value.utcoffset(None), value.tzname(None)
    return [offset] if name == dt.timezone(offset).tzname(None) else [offset, name]


_PATHS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath,
    )
}  # fmt: skip


def _path(kind: str, text: str) -> pathlib.PurePath:
    """Make a path again; one of another system's files is good for its parts alone."""
    try:
        path: pathlib.PurePath = _PATHS[kind](text)
    except NotImplementedError:
        path = _PATHS[f"Pure{kind}"](text)
    return path


# --- NumPy ---

_PLAIN_KINDS = frozenset("?biufcmMSUV")
"""NumPy's kinds of data that are bytes and nothing else."""


def _numpy_codec(value: Any) -> Codec | None:
    import numpy as np

    kind = type(value)
    if kind is np.ndarray:
        return _ARRAY
    if kind is np.str_:
        return _NUMPY_STR
    if kind is np.bytes_:
        return _NUMPY_BYTES
    return _SCALAR if isinstance(value, np.generic) else None


def _array_parts(value: Any) -> list[Any]:
    import numpy as np

    # not numpy.save: as a tensor, the data is a part of the file with a checksum of its own
    dtype = value.dtype
    spec = dtype.str if dtype.names is None else dtype.descr
    if dtype.hasobject or dtype.kind not in _PLAIN_KINDS or np.dtype(spec) != dtype:
        raise ValueError(f"an array of dtype {dtype} cannot be written as plain bytes")
    raw = bytearray(value.tobytes())
    data = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    return [spec, list(value.shape), data]


def _array(spec: Any, shape: list[int], data: torch.Tensor) -> Any:
    import numpy as np

    dtype = np.dtype(spec)
    if dtype.hasobject:
        raise ValueError(f"an array of dtype {dtype} is not plain bytes")
    raw = bytearray(data.cpu().numpy().tobytes())
    return np.ndarray(tuple(shape), dtype, raw) if raw else np.empty(tuple(shape), dtype)


def _numpy_str(text: str) -> Any:
    import numpy as np

    return np.str_(text)


def _numpy_bytes(raw: bytes) -> Any:
    import numpy as np

    return np.bytes_(raw)


_ARRAY = Codec("numpy.ndarray", _array_parts, _array)
_SCALAR = Codec(
    "numpy.generic",
    lambda value: _array_parts(value.reshape(())),
    lambda *parts: _array(*parts)[()],
)
# in an array, these would lose the zeros that they end with
_NUMPY_STR = Codec("numpy.str_", lambda value: [str.__str__(value)], _numpy_str)
_NUMPY_BYTES = Codec(
    "numpy.bytes_", lambda value: [bytes.__getitem__(value, slice(None))], _numpy_bytes
)

_BY_TYPE: dict[type, Codec] = {
    int: Codec("int", lambda value: [hex(value)], lambda text: int(text, 16)),
    bytes: Codec("bytes", lambda _: [], bytes),
    bytearray: Codec("bytearray", lambda _: [], bytearray),
    dt.date: Codec("date", _date_parts, dt.date),
    dt.time: Codec("time", _time_parts, _time),
    dt.datetime: Codec("datetime", lambda v: _date_parts(v) + _time_parts(v), _datetime),
    dt.timedelta: Codec("timedelta", lambda v: [v.days, v.seconds, v.microseconds], dt.timedelta),
    dt.timezone: Codec("timezone", _zone_parts, dt.timezone),
}
for _kind in _PATHS.values():
    _BY_TYPE[_kind] = Codec("path", lambda value: [type(value).__name__, str(value)], _path)

CODECS: dict[str, Codec] = {
    codec.name: codec for codec in (_ARRAY, _SCALAR, _NUMPY_STR, _NUMPY_BYTES, *_BY_TYPE.values())
}
