"""Mutants of callbacks: each does one thing wrong with its state, as authors do."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainer_hooks import Callback

State = dict[str, Any]


@dataclass(frozen=True)
class Mutation:
    """One fault, and the keys of the state that it is about.

    `name` is `no state`, `no load`, `empty`, `without`, `swapped`, `reversed`, `late` or `reset`.
    """

    name: str
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.name, *self.keys))


def mutations(states: Iterable[State]) -> Iterator[Mutation]:
    """Give what can be done wrong with a state, of which some examples are given."""
    whole, parts = _examples(states)
    if not whole:
        return
    for name in ("no state", "no load", "empty", "late", "reset"):
        yield Mutation(name)
    for key in (*whole, *parts):
        yield Mutation("without", (key,))
    of_type: dict[type, list[str]] = {}
    for key, values in whole.items():
        kinds = {type(value) for value in values}
        if len(kinds) == 1:
            of_type.setdefault(kinds.pop(), []).append(key)
    for alike in of_type.values():
        for pair in pairwise(alike):
            yield Mutation("swapped", pair)
    for key, values in whole.items():
        if any(isinstance(value, list | deque) and len(value) > 1 for value in values):
            yield Mutation("reversed", (key,))


def _examples(states: Iterable[State]) -> tuple[dict[str, list[Any]], dict[str, None]]:
    """Return the values of each key, and the keys of dicts in them, as in `"books.best"`."""
    whole: dict[str, list[Any]] = {}
    parts: dict[str, None] = {}
    for state in states:
        for key, value in state.items():
            whole.setdefault(str(key), []).append(value)
            if isinstance(value, dict) and 1 < len(value) < 6:
                parts |= {f"{key}.{name}": None for name in value if str(name).isidentifier()}
    return whole, parts


def mutated(factory: Callable[[], Callback], mutation: Mutation) -> Callable[[], Callback]:
    """Return a factory of such mutants, which have the class's name and `state_key`."""

    def make() -> Callback:
        callback = factory()
        kind = type(callback)
        body = _BODIES[mutation.name](kind, mutation.keys)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        callback.__class__ = type(kind.__name__, (kind,), {**body, **names})
        return callback

    return make


def _no_state(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    return {**_empty(kind, keys), **_no_load(kind, keys)}


def _empty(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    return {"state_dict": lambda self: {}}


def _no_load(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    return {"load_state_dict": lambda self, state_dict: None}


def _without(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    """Neither save a key nor take it back: it stays as the constructor made it."""
    key, _, part = keys[0].partition(".")

    def less(state: State) -> State:
        if not part:
            return {name: value for name, value in state.items() if name != key}
        inner = state.get(key)
        if not isinstance(inner, dict):
            return state
        return {**state, key: {name: value for name, value in inner.items() if name != part}}

    def state_dict(self: Any) -> State:
        return less(kind.state_dict(self))

    def load_state_dict(self: Any, state_dict: State) -> None:
        own = copy.deepcopy(kind.state_dict(self))
        full = dict(state_dict)
        if not part and key in own:
            full[key] = own[key]
        elif part and isinstance(full.get(key), dict) and part in (own.get(key) or {}):
            full[key] = {**full[key], part: own[key][part]}
        kind.load_state_dict(self, full)

    return {"state_dict": state_dict, "load_state_dict": load_state_dict}


def _swapped(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    first, second = keys

    def load_state_dict(self: Any, state_dict: State) -> None:
        state = dict(state_dict)
        if first in state and second in state:
            state[first], state[second] = state[second], state[first]
        kind.load_state_dict(self, state)

    return {"load_state_dict": load_state_dict}


def _reversed(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    def load_state_dict(self: Any, state_dict: State) -> None:
        state = dict(state_dict)
        if keys[0] in state:
            state[keys[0]] = type(state[keys[0]])(reversed(state[keys[0]]))
        kind.load_state_dict(self, state)

    return {"load_state_dict": load_state_dict}


def _late(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    """Take the state back only when the hooks that begin a training had their turn."""
    kept: dict[int, State] = {}

    def load_state_dict(self: Any, state_dict: State) -> None:
        kept[id(self)] = copy.deepcopy(state_dict)

    def on_train_start(self: Any, trainer: Any, module: Any) -> None:
        kind.on_train_start(self, trainer, module)
        state = kept.pop(id(self), None)
        if state is not None:
            kind.load_state_dict(self, state)

    return {"load_state_dict": load_state_dict, "on_train_start": on_train_start}


def _reset(kind: type[Callback], keys: tuple[str, ...]) -> dict[str, Any]:
    """Begin anew at each start of a fit, a resumed one's, too."""
    fresh: dict[int, State] = {}

    def load_state_dict(self: Any, state_dict: State) -> None:
        fresh.setdefault(id(self), copy.deepcopy(kind.state_dict(self)))
        kind.load_state_dict(self, state_dict)

    def on_fit_start(self: Any, trainer: Any, module: Any) -> None:
        kind.on_fit_start(self, trainer, module)
        state = fresh.pop(id(self), None)
        if state is not None:
            kind.load_state_dict(self, state)

    return {"load_state_dict": load_state_dict, "on_fit_start": on_fit_start}


_BODIES: dict[str, Callable[[type[Callback], tuple[str, ...]], dict[str, Any]]] = {
    "no state": _no_state,
    "no load": _no_load,
    "empty": _empty,
    "without": _without,
    "swapped": _swapped,
    "reversed": _reversed,
    "late": _late,
    "reset": _reset,
}
