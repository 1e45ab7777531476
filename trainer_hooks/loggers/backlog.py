"""Backlog: calls of a logger that are still to be made, in order and bounded."""

from __future__ import annotations

from argparse import Namespace
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Backlog", "Call", "SavedCheckpoints", "frozen"]

_MOST_CALLS = 10_000
_MOST_BYTES = 256 * 2**20


@dataclass(slots=True)
class Call:
    """One call of a logger, its values those of the moment.

    Attributes:
        name: the method.
        args: what it is given.
        kwargs: likewise.
        size: the bytes of what is heavy in that.
        tries: how often it was tried in vain.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    size: int = 0
    tries: int = 0

    @classmethod
    def of(cls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return a call whose arguments nobody changes any more."""
        if name == "after_save_checkpoint":
            args = tuple(map(SavedCheckpoints.of, args))
        (kept_args, kept_kwargs), size = frozen((args, kwargs))
        return cls(name, kept_args, kept_kwargs, size)


@dataclass(frozen=True, slots=True)
class SavedCheckpoints:
    """What a checkpoint callback had saved at a moment; its attributes have the same names."""

    state_key: str
    save_top_k: int | None
    best_model_path: str
    last_model_path: str
    best_k_models: dict[str, Any]

    @classmethod
    def of(cls, callback: Any) -> SavedCheckpoints:
        """Return what a callback has saved so far."""
        return cls(
            callback.state_key,
            getattr(callback, "save_top_k", None),
            getattr(callback, "best_model_path", ""),
            getattr(callback, "last_model_path", ""),
            dict(getattr(callback, "best_k_models", {})),
        )


class Backlog:
    """Calls in the order in which they came; where there are too many, the oldest are lost.

    Attributes:
        lost: how many were.
    """

    def __init__(self, most_calls: int = _MOST_CALLS, most_bytes: int = _MOST_BYTES) -> None:
        self._calls: deque[Call] = deque()
        self._size = 0
        self._most_calls = most_calls
        self._most_bytes = most_bytes
        self.lost = 0

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, index: int) -> Call:
        return self._calls[index]

    def add(self, call: Call) -> None:
        """Put a call at the end."""
        self._calls.append(call)
        self._size += call.size
        while len(self._calls) > self._most_calls or (
            self._size > self._most_bytes and len(self._calls) > 1
        ):
            self.remove(self._calls[0])
            self.lost += 1

    def remove(self, call: Call) -> None:
        """Take a call out, unless it was lost meanwhile."""
        for index, other in enumerate(self._calls):
            if other is call:
                del self._calls[index]
                self._size -= call.size
                return

    def clear(self) -> None:
        """Forget all."""
        self._calls.clear()
        self._size = 0

    def metrics(self) -> list[list[Any]]:
        """Return the calls of `log_metrics` as plain data: metrics and step."""
        return [
            [call.args[0], call.args[1] if len(call.args) > 1 else call.kwargs.get("step")]
            for call in self._calls
            if call.name == "log_metrics" and call.args
        ]


def frozen(value: Any) -> tuple[Any, int]:
    """Return a copy that later changes do not reach, and its bytes; an unknown object is itself."""
    if isinstance(value, Namespace):
        return frozen(vars(value))
    if isinstance(value, Mapping):
        items = {key: frozen(item) for key, item in value.items()}
        return {key: kept for key, (kept, _) in items.items()}, sum(s for _, s in items.values())
    if type(value) in (list, tuple):
        kept = [frozen(item) for item in value]
        return type(value)(item for item, _ in kept), sum(size for _, size in kept)
    if isinstance(value, str | bytes):
        return value, len(value)
    if hasattr(value, "detach") and hasattr(value, "clone"):  # a tensor
        copied = value.detach().cpu().clone()
        return copied, copied.nelement() * copied.element_size()
    if hasattr(value, "memory_usage"):  # a table of pandas
        return value.copy(), int(value.memory_usage().sum())
    if hasattr(value, "nbytes") and hasattr(value, "copy"):  # an array
        return value.copy(), int(value.nbytes)
    return value, 0
