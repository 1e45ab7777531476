"""Encoding of a state as plain data that `torch.load(weights_only=True)` opens, and back.

A deque becomes `{"__trainer_hooks__": "deque", "items": [...], "maxlen": 3}`, a date
`{"__trainer_hooks__": "date", "parts": [2026, 1, 31]}`. Values that torch can load stay as they
are, so another tool finds numbers, texts, lists, dicts and tensors in their usual places. A dict of
the user that has the key `"__trainer_hooks__"` is encoded as well, so that it cannot be mistaken
for an encoded value.

Members of Enums and named tuples are written with the name of their class and their plain value.
Reading one looks the class up among the modules that the program has loaded, and imports none: the
names in a file run no code. Where the class is missing or has changed, the plain value comes back.
"""

from __future__ import annotations

import copy
import datetime as dt
import pathlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from enum import Enum, Flag
from functools import cached_property
from importlib import import_module
from operator import is_
from reprlib import Repr
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from trainer_hooks._log import warn
from trainer_hooks.checkpoint.lightning import DATA_HPARAMS
from trainer_hooks.checkpoint.pickled_object import OpenedByTrust, PickledObject
from trainer_hooks.errors import CheckpointError, CheckpointStateError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable

# pickle's LONG1, the only long that torch reads, holds 255 bytes at most
_HUGE = 2000
"""Bits from which torch's safe unpickler refuses an int."""

FACTORIES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset)
}
"""The default factories that a defaultdict may be saved with."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The encoding of one type.

    Attributes:
        name: the type's name in a file.
        take_apart: returns the parts of a value, each of which can be encoded; raises ValueError
            with the rule for a value that cannot be written.
        put_together: rebuilds the value from its parts.
    """

    name: str
    take_apart: Callable[[Any], list[Any]]
    put_together: Callable[..., Any]


def codec_of(value: object) -> Codec | None:
    """Return the codec of a value whose type torch cannot load, or None.

    NumPy is not imported: its values are recognised by the module of their type.
    """
    kind = type(value)
    if kind.__module__ == "numpy":
        return _numpy_codec(value)
    return _BY_TYPE.get(kind)


# --- dates and paths ---


def _date_parts(value: dt.date) -> list[Any]:
    return [value.year, value.month, value.day]


def _time_parts(value: dt.time | dt.datetime) -> list[Any]:
    return [
        value.hour, value.minute, value.second, value.microsecond, value.tzinfo, value.fold,
    ]  # fmt: skip


def _zone_parts(value: dt.timezone) -> list[Any]:
    # a zone without a name of its own makes one of its offset, which must not be saved as given
    offset, name = value.utcoffset(None), value.tzname(None)
    return [offset] if name == dt.timezone(offset).tzname(None) else [offset, name]


_PATHS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath,
    )
}  # fmt: skip


def _path(kind: str, text: str) -> pathlib.PurePath:
    """Rebuild a path; one of another operating system becomes a pure path."""
    try:
        path: pathlib.PurePath = _PATHS[kind](text)
    except NotImplementedError:
        path = _PATHS[f"Pure{kind}"](text)
    return path


# --- NumPy ---

_PLAIN_KINDS = frozenset("?biufcmMSUV")
"""The dtype kinds of NumPy whose elements are plain bytes."""


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


def _array_spec(value: Any) -> Any:
    """Return the description of an array's dtype.

    Raises:
        ValueError: the array cannot be written as plain bytes.
    """
    import numpy as np

    dtype = value.dtype
    spec = dtype.str if dtype.names is None else dtype.descr
    if dtype.hasobject or dtype.kind not in _PLAIN_KINDS or np.dtype(spec) != dtype:
        raise ValueError(f"an array of dtype {dtype} cannot be written as plain bytes")
    return spec


def _array_parts(value: Any) -> list[Any]:
    # not numpy.save: as a tensor, the data becomes a zip part with a checksum of its own
    spec = _array_spec(value)
    # a copy that can be written to, without which torch warns; torch takes no empty buffer
    raw = bytearray(value.tobytes())
    data = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    return [spec, list(value.shape), data]


def _array(spec: Any, shape: list[int], data: torch.Tensor) -> Any:
    import numpy as np

    # checked before memory becomes objects: as pointers, a file's bytes would crash Python
    dtype = np.dtype(spec)
    if dtype.hasobject:
        raise ValueError(f"an array of dtype {dtype} is not plain bytes")
    raw = bytearray(data.cpu().numpy().tobytes())
    return np.ndarray(tuple(shape), dtype, raw) if raw else np.empty(tuple(shape), dtype)


_ARRAY = Codec("numpy.ndarray", _array_parts, _array)
_SCALAR = Codec(
    "numpy.generic",
    lambda value: _array_parts(value.reshape(())),
    # () takes the scalar out of an array without dimensions
    lambda *parts: _array(*parts)[()],
)
# not as arrays, in which they would lose trailing zeros
_NUMPY_STR = Codec(
    "numpy.str_", lambda value: [str.__str__(value)], lambda text: import_module("numpy").str_(text)
)
_NUMPY_BYTES = Codec(
    "numpy.bytes_",
    lambda value: [bytes.__getitem__(value, slice(None))],
    lambda raw: import_module("numpy").bytes_(raw),
)

_BY_TYPE: dict[type, Codec] = {
    # hex, since Python refuses to convert more than 4300 decimal digits
    int: Codec("int", lambda value: [hex(value)], lambda text: int(text, 16)),
    # these two come here only if they are empty
    bytes: Codec("bytes", lambda _: [], bytes),
    bytearray: Codec("bytearray", lambda _: [], bytearray),
    dt.date: Codec("date", _date_parts, dt.date),
    dt.time: Codec("time", _time_parts, lambda *parts: dt.time(*parts[:-1], fold=parts[-1])),
    dt.datetime: Codec(
        "datetime",
        lambda value: _date_parts(value) + _time_parts(value),
        lambda *parts: dt.datetime(*parts[:-1], fold=parts[-1]),  # noqa: DTZ001 - with its zone
    ),
    dt.timedelta: Codec("timedelta", lambda v: [v.days, v.seconds, v.microseconds], dt.timedelta),
    dt.timezone: Codec("timezone", _zone_parts, dt.timezone),
    PickledObject: Codec("pickle", lambda value: [value.data, value.tensors], PickledObject),
}
# by exact types, as `codec_of` looks them up: Path() makes one of the system's class
for _kind in _PATHS.values():
    _BY_TYPE[_kind] = Codec("path", lambda value: [type(value).__name__, str(value)], _path)

CODECS: dict[str, Codec] = {
    codec.name: codec for codec in (_ARRAY, _SCALAR, _NUMPY_STR, _NUMPY_BYTES, *_BY_TYPE.values())
}


# --- classes of the program ---


def _loaded_class(module: Any, qualname: Any) -> Any:
    """Return the class of that name in a module that is loaded, or None; this runs no code."""
    named: Any = sys.modules.get(module) if isinstance(module, str) else None
    for name in str(qualname).split("."):
        # not getattr: a module's `__getattr__` imports what it is asked for
        named = vars(named).get(name) if isinstance(named, ModuleType | type) else None
    return named if isinstance(named, type) else None


def _is_named_tuple(kind: Any) -> bool:
    """Return whether a class is that of a named tuple."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _class_parts(kind: type) -> list[Any]:
    """Return the names by which a class is looked up.

    Raises:
        ValueError: the class would not be found by them.
    """
    if _loaded_class(kind.__module__, kind.__qualname__) is not kind:
        raise ValueError(
            f"its class is not found in {kind.__module__} as {kind.__qualname__}: define it at the "
            "top level of a module, under its own name"
        )
    return [kind.__module__, kind.__qualname__]


def _enum_parts(value: Enum) -> list[Any]:
    kind = type(value)
    if value.name in kind.__members__:
        return [*_class_parts(kind), value.name]
    # flags that are set together have no name of their own
    if isinstance(value, Flag) and kind(value.value) is value:
        return [*_class_parts(kind), None]
    raise ValueError("it is no member of its class")


def _enum_member(kind: Any, name: Any, value: Any) -> Any:
    """Return the member of an Enum; None if the class is none, or has no such member any more."""
    if kind is None or not issubclass(kind, Enum):
        return None
    if name is not None:
        return kind.__members__.get(name)
    is_plain_flag = issubclass(kind, Flag) and kind._missing_.__func__ is Flag._missing_.__func__  # type: ignore[attr-defined]
    return kind(value) if is_plain_flag else None


def _named_tuple(kind: Any, fields: Any, items: Any) -> Any:
    """Return a named tuple; None if the class is none, or has other fields now."""
    if kind is None or not _is_named_tuple(kind) or list(kind._fields) != list(fields):
        return None
    return tuple.__new__(kind, items)  # past a `__new__` of the user's


_ENUM, _NAMED_TUPLE = "enum", "namedtuple"

TAG = "__trainer_hooks__"

DEEPEST = 64
"""Levels of nested containers. torch's own limit depends on the stack's depth at the save."""

_LEAVES = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, bytearray,
        torch.Size, torch.dtype, torch.device, torch.layout,
    }
)  # fmt: skip
_ATOMS = frozenset({type(None), bool, float, str})
"""Leaves that never need encoding: long lists of them skip the call of `encode`."""

_BYTES = (bytes, bytearray)
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
SEQUENCES: dict[type, str] = {kind: kind.__name__ for kind in (list, tuple, set, frozenset, deque)}
MAPPINGS: dict[type, str] = {
    kind: kind.__name__ for kind in (dict, OrderedDict, Counter, defaultdict)
}


class UnsavableValueError(ValueError):
    """Raised for a value that cannot be encoded as plain data.

    Attributes:
        path: the keys and indices that lead to the value.
        value: the value.
        rule: the rule that it breaks; empty where its type alone is the reason.
    """

    def __init__(self, path: str, value: object, rule: str = "") -> None:
        super().__init__(path, value, rule)
        self.path = path
        self.value = value
        self.rule = rule


class Encoder:
    """Encode the values of one checkpoint as plain data.

    A value that needs no change is returned as the same object, and shared objects stay shared.

    Args:
        whole: everything that the file will hold. A tensor that is a small part of a bigger
            storage is cloned, so that the file holds that part alone, unless the rest of the
            storage is in the file too.
        takes_classes: whether members of Enums and named tuples can be encoded.
        only_checks: whether the result is of no use, and no data of a tensor or array is copied.
    """

    def __init__(
        self, whole: Any, *, takes_classes: bool = True, only_checks: bool = False
    ) -> None:
        self._whole = whole
        self._takes_classes = takes_classes
        self._only_checks = only_checks
        self._done: dict[int, tuple[Any, Any]] = {}
        self._open: set[int] = set()

    @cached_property
    def _used(self) -> dict[int, dict[Any, int]]:
        """For each storage, by its address, the bytes that each view of it in `whole` covers."""
        used: dict[int, dict[Any, int]] = {}
        seen: set[int] = set()
        left = [self._whole]
        # a loop and no recursion: how deep the state is nested is checked only as it is encoded
        while left:
            value = left.pop()
            kind = type(value)
            if kind in _LEAVES:
                continue
            if kind in _TENSORS and _is_in_memory(value):
                views = used.setdefault(value.untyped_storage().data_ptr(), {})
                place = (value.storage_offset(), value.shape, value.stride())
                views[place] = value.numel() * value.element_size()
            elif (kind in SEQUENCES or kind in MAPPINGS or _is_named_tuple(kind)) and id(
                value
            ) not in seen:
                seen.add(id(value))
                left.extend(value)
                left.extend(value.values() if kind in MAPPINGS else ())
        return used

    def encode(self, value: Any, path: str = "") -> Any:
        """Return `value` as plain data.

        Args:
            value: the value.
            path: the keys and indices that lead to the value, for messages.

        Raises:
            UnsavableValueError: the value contains itself, or an object that only code can rebuild.
        """
        kind = type(value)
        if kind in _LEAVES and not (
            # values that torch's safe unpickler refuses, although it accepts their types
            value.bit_length() > _HUGE if kind is int else kind in _BYTES and not value
        ):
            return value
        if id(value) in self._done:
            return self._done[id(value)][1]
        encoded: Any
        if kind in _TENSORS:
            encoded = self._tensor(value, path)
        elif self._takes_classes and isinstance(value, Enum):
            encoded = self._enum(value, path)
        elif kind in SEQUENCES or kind in MAPPINGS or _is_named_tuple(kind):
            if id(value) in self._open or len(self._open) >= DEEPEST:
                raise self._nesting_error(value, path)
            self._open.add(id(value))
            if kind in MAPPINGS:
                encoded = self._mapping(value, path)
            elif kind not in SEQUENCES:
                encoded = self._named_tuple(value, path)
            else:
                items = [
                    item if type(item) in _ATOMS else self.encode(item, f"{path}[{number}]")
                    for number, item in enumerate(value)
                ]
                if kind in (list, tuple, set) and all(map(is_, items, value)):
                    encoded = value
                elif kind in (list, tuple):
                    encoded = kind(items)
                else:
                    encoded = {TAG: SEQUENCES[kind], "items": items}
                    if kind is deque:
                        encoded["maxlen"] = value.maxlen
            self._open.discard(id(value))
        else:
            encoded = self._single(value, path)
        # with the value itself: while it is referenced, no other object can get its id
        self._done[id(value)] = (value, encoded)
        return encoded

    def _nesting_error(self, value: Any, path: str) -> UnsavableValueError:
        if id(value) in self._open:
            return UnsavableValueError(path, value, "it holds itself")
        shown = path if len(path) < 60 else f"{path[:60]}..."
        return UnsavableValueError(shown, value, f"it lies more than {DEEPEST} levels deep")

    def _mapping(self, value: Any, path: str) -> Any:
        kind = type(value)
        # torch saves the attributes of an OrderedDict as they are, and those of no other mapping
        if kind is Counter and vars(value):
            raise UnsavableValueError(path, value, "something is attached to it as an attribute")
        for name, attached in vars(value).items() if kind is OrderedDict else ():
            if self.encode(attached, f"{path}.{name}") is not attached:
                raise UnsavableValueError(f"{path}.{name}", attached, "as an attribute it is lost")
        keys = [
            key if type(key) in _ATOMS else self.encode(key, f"{path} (a key)") for key in value
        ]
        items = [
            item if type(item) in _ATOMS else self.encode(item, f"{path}[{key!r}]")
            for key, item in value.items()
        ]
        # a dict of the user with our key would be read as an encoded value
        has_plain_keys = all(map(is_, keys, value)) and not (kind is dict and TAG in value)
        if kind is not defaultdict and has_plain_keys:
            if all(map(is_, items, value.values())):
                return value
            return with_items(value, zip(keys, items, strict=True))
        tagged: dict[str, Any] = {
            TAG: MAPPINGS[kind],
            # pairs, not a dict: an encoded key is a dict itself, which no dict takes as a key
            "items": list(map(list, zip(keys, items, strict=True))),
        }
        if kind is defaultdict:
            tagged["factory"] = self._factory(value, path)
        return tagged

    def _factory(self, value: Any, path: str) -> str | None:
        factory = value.default_factory
        if factory is None:
            return None
        for name, candidate in FACTORIES.items():
            if candidate is factory:
                return name
        known_ones = ", ".join(FACTORIES)
        raise UnsavableValueError(
            f"{path} (its factory)", factory, f"it must be one of {known_ones}"
        )

    def _enum(self, value: Enum, path: str) -> dict[str, Any]:
        try:
            parts = _enum_parts(value)
        except ValueError as error:
            raise UnsavableValueError(path, value, str(error)) from error
        # the value without the class of the member; it may be any object, which is not needed
        plain = value.value
        try:
            parts.append(Encoder(plain).encode(plain))
        except UnsavableValueError:
            parts.append(value.name)
        return {TAG: _ENUM, "parts": parts}

    def _named_tuple(self, value: Any, path: str) -> dict[str, Any]:
        kind = type(value)
        if not self._takes_classes:
            raise UnsavableValueError(path, value)
        if getattr(value, "__dict__", None):
            raise UnsavableValueError(path, value, "something is attached to it as an attribute")
        try:
            parts = [*_class_parts(kind), list(kind._fields)]
        except ValueError as error:
            raise UnsavableValueError(path, value, str(error)) from error
        items = [
            self.encode(item, f"{path}.{field}")
            for field, item in zip(kind._fields, value, strict=True)
        ]
        return {TAG: _NAMED_TUPLE, "parts": [*parts, items]}

    def _single(self, value: Any, path: str) -> dict[str, Any]:
        codec = codec_of(value)
        if codec is None:
            raise UnsavableValueError(path, value)
        try:
            if codec is _ARRAY and self._only_checks:
                _array_spec(value)
                return {}
            parts = codec.take_apart(value)
        except ValueError as error:
            raise UnsavableValueError(path, value, str(error)) from error
        return {TAG: codec.name, "parts": [self.encode(part, path) for part in parts]}

    def _tensor(self, value: torch.Tensor, path: str) -> torch.Tensor:
        """Return the tensor without its Python attributes and unrelated parts of its storage."""
        if value.is_meta:
            raise UnsavableValueError(path, value, "it is on the device meta, and has no values")
        bare = value
        # torch.save would pickle attributes set on a tensor, which may be objects of any class
        if vars(value):
            bare = value.detach()
            if type(value) is torch.nn.Parameter:
                bare = torch.nn.Parameter(bare, value.requires_grad)
            elif value.requires_grad:
                bare.requires_grad_()
        # sparse, quantized and nested tensors: no views of a storage that could be cloned in part
        if not _is_in_memory(bare):
            if bare.layout is torch._mkldnn:  # type: ignore[attr-defined]  # noqa: SLF001
                raise UnsavableValueError(
                    path, value, "it has a layout of this machine: to_dense()"
                )
            return bare
        if self._only_checks:
            return bare
        storage = bare.untyped_storage()
        # the common case, in which nobody has to look through the whole checkpoint
        if 2 * bare.numel() * bare.element_size() >= storage.nbytes():
            return bare
        # torch.save writes the whole storage of a view: a row of a large tensor would be as large
        views = self._used.get(storage.data_ptr())
        # None: not in `whole`, made here of an array. To pay, a clone must save half of the bytes
        if views is None or 2 * sum(views.values()) >= storage.nbytes():
            return bare
        copied = bare.detach().clone()
        if type(bare) is torch.nn.Parameter:
            return torch.nn.Parameter(copied, bare.requires_grad)
        return copied.requires_grad_(bare.requires_grad)


def with_items(mapping: Any, items: Any) -> Any:
    """Return a new mapping of the same class with other items."""
    # item by item: a Counter made from pairs would count the pairs
    made = type(mapping)()
    for key, item in items:
        made[key] = item
    # Module.state_dict() keeps the versions of its modules in the attribute `_metadata`
    if isinstance(mapping, OrderedDict):
        vars(made).update(vars(mapping))
    return made


def _is_in_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a dense view of one storage."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
    )


_CONTAINERS: dict[str, Any] = {name: kind for kind, name in (SEQUENCES | MAPPINGS).items()}


def decode(value: Any, source: str, *, warns: bool = False) -> Any:
    """Return a value as it was before an `Encoder` encoded it.

    Args:
        value: the data read from a file.
        source: the file, for messages.
        warns: whether to warn of Enums and named tuples whose class the program has not loaded, or
            has changed: their plain value is returned.

    Raises:
        CheckpointError: no `Encoder` wrote this data, or a newer version did.
    """
    decoder = _Decoder(source)
    decoded = decoder.decode(value)
    if warns and decoder.missing:
        warn(
            f"checkpoint {source!r} holds values of {', '.join(sorted(decoder.missing))}: this "
            "program has not loaded such a class, or it has changed, so their plain values are "
            "restored. Import it before the run if they are to come back as they were.",
            TrainerHooksWarning,
        )
    return decoded


class _Decoder:
    def __init__(self, source: str) -> None:
        self._source = source
        self.missing: set[str] = set()
        self._done: dict[int, Any] = {}
        self._depth = 0

    def decode(self, value: Any) -> Any:
        kind = type(value)
        if kind not in (list, tuple) and kind not in MAPPINGS:
            return value
        if id(value) in self._done:
            return self._done[id(value)]
        if self._depth > 3 * DEEPEST:  # a dict with encoded keys has three levels for one
            raise self._wrong("it holds itself, or is nested too deep")
        self._depth += 1
        decoded: Any
        if kind is dict and TAG in value:
            decoded = self._tagged(value)
        elif kind in MAPPINGS:
            items = [self.decode(item) for item in value.values()]
            is_same = all(map(is_, items, value.values()))
            decoded = value if is_same else with_items(value, zip(value, items, strict=True))
        else:
            items = [self.decode(item) for item in value]
            decoded = value if all(map(is_, items, value)) else kind(items)
        self._depth -= 1
        # by id alone: the caller holds the data of the file, so that no id is used again
        self._done[id(value)] = decoded
        return decoded

    def _tagged(self, value: dict[Any, Any]) -> Any:
        name = value[TAG]
        try:
            if name == _ENUM:
                module, qualname, member, plain = self.decode(value["parts"])
                made = _enum_member(_loaded_class(module, qualname), member, plain)
                return self._made(made, f"{module}.{qualname}", plain)
            if name == _NAMED_TUPLE:
                module, qualname, fields, items = self.decode(value["parts"])
                made = _named_tuple(_loaded_class(module, qualname), fields, items)
                return self._made(made, f"{module}.{qualname}", tuple(items))
            if name in CODECS:
                return CODECS[name].put_together(*self.decode(value["parts"]))
            return self._container(name, value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise self._wrong(f"{name!r} ({type(error).__name__}: {error})") from error

    def _made(self, made: Any, kind: str, plain: Any) -> Any:
        """Return the object, or its plain value where there is no such class."""
        if made is None:
            self.missing.add(kind)
            return plain
        return made

    def _container(self, name: Any, value: dict[Any, Any]) -> Any:
        items = self.decode(value["items"])
        kind = _CONTAINERS.get(name)
        if kind is None:
            raise self._wrong(f"{name!r}, which this version does not know")
        if kind is deque:
            return deque(items, value["maxlen"])
        if kind is Counter:
            # by way of a dict, as Counter(items) would count the pairs
            return Counter(dict(items))
        if kind is defaultdict:
            factory = value["factory"]
            return defaultdict(None if factory is None else FACTORIES[factory], items)
        return kind(items)

    def _wrong(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"checkpoint {self._source!r} holds a value that cannot be put together: {what}. It is "
            "damaged, or was written by a newer version. Upgrade trainer-hooks, or resume from "
            "another one."
        )


def opened_by_trust(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return an encoded checkpoint of which `torch.load(weights_only=False)` opens the pickles.

    Args:
        checkpoint: the checkpoint; its hyperparameters may hold pickles.
    """
    # a copy of its class: bare weights carry the versions of their modules in an attribute
    opened = copy.copy(checkpoint)
    opened.update({key: _opened_by_trust(value) for key, value in checkpoint.items()})
    for key in ("hyper_parameters", DATA_HPARAMS):
        if type(opened.get(key)) is dict:
            opened[key] = {name: _opened_by_trust(value) for name, value in opened[key].items()}
    return opened


def _opened_by_trust(value: Any) -> Any:
    is_pickle = type(value) is dict and value.get(TAG) == _BY_TYPE[PickledObject].name
    return OpenedByTrust(*value["parts"]) if is_pickle else value


_SHORT = Repr()
_SHORT.maxother = _SHORT.maxstring = 80


def find_unsavable(value: Any, *, takes_classes: bool = True) -> tuple[str, Any] | None:
    """Return the path and the first value in `value` that a checkpoint cannot hold, or None.

    Args:
        value: the value; no data in it is copied.
        takes_classes: whether it may hold members of Enums and named tuples.
    """
    try:
        Encoder(value, takes_classes=takes_classes, only_checks=True).encode(value)
    except UnsavableValueError as error:
        return error.path, error.value
    return None


def require_plain(value: Any, owner: str, *, takes_classes: bool = False) -> None:
    """Raise unless `value` can be saved and loaded back safely; no data in it is copied.

    Args:
        value: the value.
        owner: the callback or key that the value belongs to, for messages.
        takes_classes: whether it may hold members of Enums and named tuples.

    Raises:
        CheckpointStateError: it cannot; the message names the owner and the position in the value.
    """
    try:
        Encoder(value, takes_classes=takes_classes, only_checks=True).encode(value)
    except UnsavableValueError as error:
        raise _refusal(error, owner) from error


def encode_checkpoint(checkpoint: dict[str, Any], label_of: Callable[[str], str]) -> dict[str, Any]:
    """Return a checkpoint as data that torch opens without running code.

    Args:
        checkpoint: the checkpoint.
        label_of: returns the description of the callback with a state key, for messages.

    Raises:
        CheckpointStateError: it holds an object that only code could rebuild; the message names
            the owner and the position in the value.
    """
    encoder = Encoder(checkpoint)  # one for all: objects that two owners share stay shared
    encoded: dict[str, Any] = {}
    states: dict[str, Any] = {}
    key, state_key = "", None
    try:
        for key, value in checkpoint.items():
            if key != "callbacks":
                encoded[key] = encoder.encode(value)
        # one by one, so that the message can name the callback
        for state_key, state in checkpoint.get("callbacks", {}).items():
            states[state_key] = encoder.encode(state)
    except UnsavableValueError as error:
        owner = f"checkpoint[{key!r}]" if state_key is None else label_of(state_key)
        raise _refusal(error, owner) from error
    return {**encoded, "callbacks": states} if "callbacks" in checkpoint else encoded


def _refusal(error: UnsavableValueError, owner: str) -> CheckpointStateError:
    item = error.value
    if isinstance(item, torch.Tensor) and is_lazy(item):
        return CheckpointStateError(
            f"{owner} holds a lazy tensor at state{error.path}, which gets its size with the first "
            "batch: save after that, or run one batch through the module in configure_model."
        )
    named = f"{type(item).__module__}.{type(item).__qualname__}"
    rule = f" {error.rule[0].upper()}{error.rule[1:]}." if error.rule else ""
    return CheckpointStateError(
        f"the state of {owner} holds {_SHORT.repr(item)} of type {named} at state{error.path}: "
        "a checkpoint holds only plain data (numbers, texts, bytes, dates, paths, Enums, "
        "containers of those), arrays and tensors, and no subclasses of them, so that opening one "
        f"runs no code.{rule} Save plain data and rebuild the object in load_state_dict. Parts of "
        "the "
        "state of another framework's callback can be named: "
        "trainer_hooks.adapters.keep_opaque(callback, key)."
    )
