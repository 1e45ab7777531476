"""Roster: who takes part, who supplied it, and under which `state_key`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.errors import StateKeyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.callback import Callback
    from trainer_hooks.hooks import Band, Plugin

__all__ = ["Default", "Entry", "Roster"]


@dataclass(frozen=True, slots=True)
class Default:
    """A callback that takes part unless somebody supplied one of the same kind.

    Attributes:
        callback: the default.
        unless: the type that makes it unneeded.
    """

    callback: Callback
    unless: type[Callback]

    def is_unneeded_beside(self, entry: Entry) -> bool:
        """Return whether `entry` is one of the same kind."""
        return isinstance(entry.callback, self.unless)


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered callback and who supplied it.

    Attributes:
        callback: the callback.
        origin: `"user"`, `"plugin"`, `"default"` or `"module"`.
        plugin: where `origin` is `"plugin"`, which one.
    """

    callback: Callback
    origin: str
    plugin: Plugin | None = None

    @property
    def band(self) -> Band:
        """The callback's band."""
        return self.callback.band

    @property
    def identity(self) -> tuple[type[Callback], str]:
        """What makes a callback take another's place: its type and its state_key."""
        return type(self.callback), self.callback.state_key

    @property
    def names(self) -> tuple[str, ...]:
        """What the user may call it in an option: its state_key, or its class's name."""
        kind = type(self.callback)
        return self.callback.state_key, kind.__qualname__, kind.__name__

    @property
    def supplier(self) -> str:
        """Who supplied it, in words."""
        if self.plugin is not None:
            return f"plugin {self.plugin.distribution} {self.plugin.version}"
        return {"user": "Trainer(callbacks=...)", "module": "configure_callbacks"}.get(
            self.origin, self.origin
        )

    @property
    def label(self) -> str:
        """How messages name it."""
        kind = type(self.callback).__qualname__
        return f"callback {kind} (state_key {self.callback.state_key!r}, from {self.supplier})"


class Roster:
    """Who takes part, in the order of registration; no two of them under one `state_key`.

    Looking somebody up, adding and taking out cost the same however many there are.

    Args:
        entries: who takes part from the start.

    Raises:
        StateKeyError: two stateful callbacks have one `state_key`.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: dict[int, tuple[Entry, str]] = {}
        self._owners: dict[str, Entry] = {}
        for entry in entries:
            self.add(entry)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry, _ in self._entries.values())

    def __contains__(self, callback: object) -> bool:
        return id(callback) in self._entries

    def check(self, entry: Entry, instead_of: Iterable[Entry] = ()) -> None:
        """Make sure that `entry` does not write where another does.

        Args:
            entry: who is to be added.
            instead_of: who is to be taken out for it.

        Raises:
            StateKeyError: it does; the error names both and says what to write.
        """
        if not entry.callback.is_stateful:
            return
        other = self._owners.get(entry.callback.state_key)
        if other is None or any(other.callback is known.callback for known in instead_of):
            return
        raise StateKeyError(
            f"state_key {entry.callback.state_key!r} belongs to two stateful callbacks, "
            f"{type(other.callback).__module__}.{type(other.callback).__qualname__} (from "
            f"{other.supplier}) and {type(entry.callback).__module__}."
            f"{type(entry.callback).__qualname__} (from {entry.supplier}): each needs its own, "
            f"or one would overwrite the other in the checkpoint. {_advice(entry.callback)}"
        )

    def add(self, entry: Entry) -> None:
        """Add somebody.

        Raises:
            StateKeyError: another stateful callback has its `state_key`.
        """
        self.check(entry)
        key = entry.callback.state_key
        self._entries[id(entry.callback)] = entry, key
        if entry.callback.is_stateful:
            self._owners[key] = entry

    def discard(self, callback: object) -> None:
        """Take somebody out who may be in it."""
        entry, key = self._entries.pop(id(callback), (None, ""))
        if entry is not None and self._owners.get(key) is entry:
            del self._owners[key]


def _advice(callback: Callback) -> str:
    """Return how to give a callback a state key of its own."""
    if "name" in inspect.signature(type(callback)).parameters:
        return f"Give one of them a name of its own: {type(callback).__qualname__}(..., name=...)."
    return (
        "Define `state_key` as a property that returns self._generate_state_key(name=...) with the "
        "arguments that tell the instances apart."
    )
