"""Values that torch's safe loading does not know, written as plain data that it does.

A deque becomes `{"__trainer_hooks__": "deque", "items": [...], "maxlen": 3}`, a date
`{"__trainer_hooks__": "date", "parts": [2026, 1, 31]}`. What torch knows stays as it is, so another
tool finds numbers, texts, lists, dicts and tensors where they were. A dict of the user's own that
has the key `"__trainer_hooks__"` is written as one of these too, so it cannot be mistaken for one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from operator import is_
from typing import Any

import torch

from trainer_hooks.checkpoint.codecs import FACTORIES, codec_of, is_special

__all__ = [
    "DEEPEST",
    "MAPPINGS",
    "SEQUENCES",
    "TAG",
    "Encoder",
    "ForeignValueError",
    "with_items",
]

TAG = "__trainer_hooks__"

DEEPEST = 64
"""Levels of containers in one another. torch's own limit depends on the stack at that moment."""

_LEAVES = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, bytearray,
        torch.Size, torch.dtype, torch.device, torch.layout,
    }
)  # fmt: skip
_ATOMS = frozenset({type(None), bool, float, str})
"""Leaves that are always plain; a long list of them is passed through quickly."""

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
SEQUENCES: dict[type, str] = {kind: kind.__name__ for kind in (list, tuple, set, frozenset, deque)}
MAPPINGS: dict[type, str] = {
    kind: kind.__name__ for kind in (dict, OrderedDict, Counter, defaultdict)
}


class ForeignValueError(ValueError):
    """Raised for a value that cannot be written as plain data.

    Attributes:
        path: its place.
        value: it.
        rule: why not, where that is not for its type alone.
    """

    def __init__(self, path: str, value: object, rule: str = "") -> None:
        super().__init__(path, value, rule)
        self.path = path
        self.value = value
        self.rule = rule


class Encoder:
    """Writes the values of one file as plain data.

    What needs no change is handed back as it is, and what is shared stays shared.

    Args:
        whole: all that the file will hold. A tensor that is a small part of a bigger one is copied,
            so that the file holds that part alone, unless the others are in the file too.
    """

    def __init__(self, whole: Any) -> None:
        self._used = _storage_use(whole)
        self._done: dict[int, tuple[Any, Any]] = {}
        self._open: set[int] = set()

    def encode(self, value: Any, path: str = "") -> Any:
        """Return `value` as plain data.

        Raises:
            ForeignValueError: it holds what only code could rebuild, or itself.
        """
        kind = type(value)
        if kind in _LEAVES and not is_special(value):
            return value
        if id(value) in self._done:
            return self._done[id(value)][1]
        encoded: Any
        if kind in _TENSORS:
            encoded = self._tensor(value, path)
        elif kind in SEQUENCES or kind in MAPPINGS:
            self._enter(value, path)
            encoded = self._mapping(value, path) if kind in MAPPINGS else self._items(value, path)
            self._open.discard(id(value))
        else:
            encoded = self._single(value, path)
        self._done[id(value)] = (value, encoded)  # the value too, for its id to stay its own
        return encoded

    def _enter(self, value: Any, path: str) -> None:
        if id(value) in self._open:
            raise ForeignValueError(path, value, "it holds itself")
        if len(self._open) >= DEEPEST:
            shown = path if len(path) < 60 else f"{path[:60]}..."
            raise ForeignValueError(shown, value, f"it lies more than {DEEPEST} levels deep")
        self._open.add(id(value))

    def _items(self, value: Any, path: str) -> Any:
        items = [
            item if type(item) in _ATOMS else self.encode(item, f"{path}[{number}]")
            for number, item in enumerate(value)
        ]
        kind = type(value)
        is_same = all(map(is_, items, value))
        if kind in (list, tuple, set) and is_same:
            return value
        if kind in (list, tuple):
            return kind(items)
        tagged = {TAG: SEQUENCES[kind], "items": items}
        return {**tagged, "maxlen": value.maxlen} if kind is deque else tagged

    def _mapping(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind in (OrderedDict, Counter) and vars(value):
            self._require_attributes(value, path)
        keys = [
            key if type(key) in _ATOMS else self.encode(key, f"{path} (a key)") for key in value
        ]
        items = [
            item if type(item) in _ATOMS else self.encode(item, f"{path}[{key!r}]")
            for key, item in value.items()
        ]
        has_plain_keys = all(map(is_, keys, value)) and not (kind is dict and TAG in value)
        if kind is not defaultdict and has_plain_keys:
            if all(map(is_, items, value.values())):
                return value
            return with_items(value, zip(keys, items, strict=True))
        tagged: dict[str, Any] = {
            TAG: MAPPINGS[kind],
            "items": list(map(list, zip(keys, items, strict=True))),
        }
        if kind is defaultdict:
            tagged["factory"] = self._factory(value, path)
        return tagged

    def _factory(self, value: Any, path: str) -> str | None:
        factory = value.default_factory
        if factory is None:
            return None
        for name, known in FACTORIES.items():
            if known is factory:
                return name
        known_ones = ", ".join(FACTORIES)
        raise ForeignValueError(f"{path} (its factory)", factory, f"it must be one of {known_ones}")

    def _require_attributes(self, value: Any, path: str) -> None:
        """Make sure of what was attached to a mapping: it is saved with it."""
        if type(value) is Counter:
            raise ForeignValueError(path, value, "something is attached to it as an attribute")
        for name, attached in vars(value).items():
            if self.encode(attached, f"{path}.{name}") is not attached:
                raise ForeignValueError(f"{path}.{name}", attached, "as an attribute it is lost")

    def _single(self, value: Any, path: str) -> dict[str, Any]:
        codec = codec_of(value)
        if codec is None:
            raise ForeignValueError(path, value)
        try:
            parts = codec.take_apart(value)
        except ValueError as error:
            raise ForeignValueError(path, value, str(error)) from error
        return {TAG: codec.name, "parts": [self.encode(part, path) for part in parts]}

    def _tensor(self, value: torch.Tensor, path: str) -> torch.Tensor:
        """Return the tensor without what was attached to it, and without what lies around it."""
        if value.is_meta:
            raise ForeignValueError(path, value, "it is on the device meta, and has no values")
        bare = value
        if vars(value):  # any object may be attached to a tensor, and would be saved with it
            bare = value.detach()
            if type(value) is torch.nn.Parameter:
                bare = torch.nn.Parameter(bare, value.requires_grad)
            elif value.requires_grad:
                bare.requires_grad_()
        if not _is_in_memory(bare):
            if bare.layout is torch._mkldnn:  # type: ignore[attr-defined]  # noqa: SLF001
                raise ForeignValueError(path, value, "it has a layout of this machine: to_dense()")
            return bare
        storage = bare.untyped_storage()
        views = self._used.get(storage.data_ptr())
        if views is None or 2 * sum(views.values()) >= storage.nbytes():
            return bare
        copied = bare.detach().clone()
        if type(bare) is torch.nn.Parameter:
            return torch.nn.Parameter(copied, bare.requires_grad)
        return copied.requires_grad_(bare.requires_grad)


def with_items(mapping: Any, items: Any) -> Any:
    """Return a mapping of the same kind with other items."""
    made = type(mapping)()
    for key, item in items:
        made[key] = item
    if isinstance(mapping, OrderedDict):  # a state_dict has its modules' versions as an attribute
        vars(made).update(vars(mapping))
    return made


def _is_in_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a view of one stretch of memory."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
    )


def _storage_use(whole: Any) -> dict[int, dict[Any, int]]:
    """Return how many bytes of each stretch of memory the tensors in `whole` show, view by view."""
    used: dict[int, dict[Any, int]] = {}
    seen: set[int] = set()
    left = [whole]
    while left:
        value = left.pop()
        kind = type(value)
        if kind in _TENSORS and _is_in_memory(value):
            views = used.setdefault(value.untyped_storage().data_ptr(), {})
            place = (value.storage_offset(), value.shape, value.stride())
            views[place] = value.numel() * value.element_size()
        elif (kind in SEQUENCES or kind in MAPPINGS) and id(value) not in seen:
            seen.add(id(value))
            left.extend(value)
            left.extend(value.values() if kind in MAPPINGS else ())
    return used
