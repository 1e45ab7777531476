"""Values that an `Encoder` has written as plain data, made again."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from operator import is_
from typing import Any

from trainer_hooks.checkpoint.codecs import CODECS, FACTORIES
from trainer_hooks.checkpoint.encoding import DEEPEST, MAPPINGS, SEQUENCES, TAG, with_items
from trainer_hooks.errors import CheckpointError

__all__ = ["decode"]

_CONTAINERS: dict[str, Any] = {name: kind for kind, name in (SEQUENCES | MAPPINGS).items()}


def decode(value: Any, source: str) -> Any:
    """Return what an `Encoder` has written as it was before.

    Args:
        value: what was read from a file.
        source: the file, for messages.

    Raises:
        CheckpointError: something in it was not written by an `Encoder`, or by a newer one.
    """
    return _Decoder(source).decode(value)


class _Decoder:
    def __init__(self, source: str) -> None:
        self._source = source
        self._done: dict[int, Any] = {}
        self._depth = 0

    def decode(self, value: Any) -> Any:
        kind = type(value)
        if kind not in (list, tuple) and kind not in MAPPINGS:
            return value
        if id(value) in self._done:
            return self._done[id(value)]
        if self._depth > 3 * DEEPEST:  # a dict with keys that torch does not know takes three
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
        self._done[id(value)] = decoded
        return decoded

    def _tagged(self, value: dict[Any, Any]) -> Any:
        name = value[TAG]
        try:
            if name in CODECS:
                return CODECS[name].put_together(*self.decode(value["parts"]))
            return self._container(name, value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise self._wrong(f"{name!r} ({type(error).__name__}: {error})") from error

    def _container(self, name: Any, value: dict[Any, Any]) -> Any:
        items = self.decode(value["items"])
        kind = _CONTAINERS.get(name)
        if kind is None:
            raise self._wrong(f"{name!r}, which this version does not know")
        if kind is deque:
            return deque(items, value["maxlen"])
        if kind is Counter:
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
