"""Random generators that data sets, samplers and loaders keep: found, saved, and put back."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import torch

from trainer_hooks.data.fingerprint import fingerprint
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["DrawWatch", "KeptGenerator", "draw_salt", "generators_in", "reseed"]

_DEPTH = 3
_MOST_ITEMS = 64
_MOST_OBJECTS = 2000


class KeptGenerator(Protocol):
    """What can be done with a generator of any kind; torch's own are such as they are."""

    def get_state(self) -> Any:
        """Return its state as plain data and tensors."""

    def set_state(self, state: Any) -> Any:
        """Take back what `get_state` returned."""


class _PythonGenerator:
    """A `random.Random`, whose state is plain data and a tensor."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator

    def get_state(self) -> Any:
        version, internal, gauss = self.generator.getstate()
        return (version, torch.tensor(internal, dtype=torch.int64), gauss)

    def set_state(self, state: Any) -> None:
        version, internal, gauss = state
        self.generator.setstate((version, tuple(internal.tolist()), gauss))


class _NumpyGenerator:
    """A NumPy `Generator`, whose state is that of its bit generator; a `RandomState` as well."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def get_state(self) -> Any:
        return _plain(self._bits().state)

    def set_state(self, state: Any) -> None:
        self._bits().state = _arrays(state)

    def _bits(self) -> Any:
        if hasattr(self.generator, "bit_generator"):
            return self.generator.bit_generator
        return _LegacyBits(self.generator)


class _LegacyBits:
    """Lets the state of a `RandomState`, with the half-used pair of normals, look like others'."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    @property
    def state(self) -> Any:
        return self._generator.get_state(legacy=False)

    @state.setter
    def state(self, value: Any) -> None:
        self._generator.set_state(value)


class DrawWatch:
    """Tells whether random numbers were drawn: global ones on the host, or from generators.

    Args:
        generators: the generators.
    """

    def __init__(self, generators: list[KeptGenerator]) -> None:
        self._generators = generators
        self.begin()

    def begin(self) -> None:
        """Forget what was drawn until now."""
        self._states = self._read()
        self._moment = rng.moment()

    @property
    def has_seen_any(self) -> bool:
        """Whether a number was drawn since it was begun."""
        return self._read() != self._states or rng.has_moved_since(self._moment)

    def _read(self) -> list[Any]:
        return [fingerprint(generator.get_state()) for generator in self._generators]


def generators_in(owners: Iterable[Any]) -> list[KeptGenerator]:
    """Return the generators among the attributes of objects, each once, in the order of attributes.

    Attributes are followed a few steps deep, through lists and dicts as well. Long containers are
    data and are left alone.
    """
    found: list[KeptGenerator] = []
    known: set[int] = {id(torch.default_generator)}
    for owner in owners:
        for item in _walk(owner, _DEPTH, known):
            if isinstance(item, torch.Generator):
                found.append(item)
            elif isinstance(item, random.Random):
                found.append(_PythonGenerator(item))
            elif _is_numpy(item):
                found.append(_NumpyGenerator(item))
    return found


def draw_salt(generator: KeptGenerator) -> int:
    """Draw a number from 0 to 2**32 - 1 from a generator of any kind."""
    if isinstance(generator, torch.Generator):
        return int(torch.randint(2**32, (), generator=generator))
    inner: Any = getattr(generator, "generator", None)
    if isinstance(inner, random.Random):
        return inner.getrandbits(32)
    if hasattr(inner, "bit_generator"):
        return int(inner.integers(2**32))
    return int(inner.randint(2**32, dtype="uint64"))


def reseed(generator: KeptGenerator, seed: int) -> None:
    """Seed a generator of any kind anew, by a number that is not negative."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
        return
    inner: Any = getattr(generator, "generator", None)
    if hasattr(inner, "bit_generator"):
        inner.bit_generator.state = type(inner.bit_generator)(seed).state
    else:
        inner.seed(seed % 2**32)


def _walk(item: Any, depth: int, known: set[int]) -> Iterator[Any]:
    """Give an object and what hangs on it, each once."""
    if id(item) in known or len(known) > _MOST_OBJECTS or _is_leaf(item):
        return
    known.add(id(item))
    yield item
    if depth == 0:
        return
    if isinstance(item, dict):
        parts = list(item.values())
    elif isinstance(item, list | tuple):
        parts = list(item)
    else:
        parts = list(getattr(item, "__dict__", {}).values())
        depth -= 1
    if len(parts) <= _MOST_ITEMS:
        for part in parts:
            yield from _walk(part, depth, known)


def _is_leaf(item: Any) -> bool:
    """Return whether an object is data, code or a name, and nothing that keeps a generator."""
    plain = (str, bytes, int, float, complex, type(None), type, torch.Tensor, type(sys))
    return isinstance(item, plain) or hasattr(item, "__array__") or hasattr(item, "__code__")


def _is_numpy(item: Any) -> TypeGuard[Any]:
    numpy = sys.modules.get("numpy")
    if numpy is None or item is numpy.random.mtrand._rand:  # noqa: SLF001 - the global one
        return False
    return isinstance(item, numpy.random.Generator | numpy.random.RandomState)


def _plain(state: Any) -> Any:
    """Return a state with tensors in place of arrays: it must be safe to load."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    if hasattr(state, "__array__"):
        return {"array": torch.from_numpy(state.astype("int64")), "dtype": str(state.dtype)}
    return state.item() if hasattr(state, "item") else state


def _arrays(state: Any) -> Any:
    if isinstance(state, dict):
        if state.keys() == {"array", "dtype"}:
            return state["array"].numpy().astype(state["dtype"])
        return {key: _arrays(value) for key, value in state.items()}
    return state
