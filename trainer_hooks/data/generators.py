"""Random generators that data sets, samplers and loaders keep: found, saved, and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from trainer_hooks.data.fingerprint import fingerprint
from trainer_hooks.data.walking import walk
from trainer_hooks.runtime import rng

__all__ = [
    "DrawWatch",
    "KeptGenerator",
    "draw_salt",
    "generator_states",
    "generators_in",
    "reseed",
    "restore_generators",
]


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

    def __init__(self, generators: Mapping[str, KeptGenerator]) -> None:
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

    def _read(self) -> dict[str, Any]:
        states = generator_states(self._generators)
        return {place: fingerprint(state) for place, state in states.items()}


def generators_in(owners: Mapping[str, Any]) -> dict[str, KeptGenerator]:
    """Return the random generators that objects keep, each once, by the place it was found at.

    Torch's, Python's and NumPy's are found, wherever they hang: see `walk`. The global ones are
    none of them, and one in a global variable is not found.

    Args:
        owners: where to look, by the name that places begin with, such as `"module"`.
    """
    found: dict[str, KeptGenerator] = {}
    known = _global_ones()
    for name, owner in owners.items():
        for place, item in walk(name, owner, known):
            kind = type(item)
            if issubclass(kind, torch.Generator):
                found[place] = item
            elif issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):
                found[place] = _PythonGenerator(item)
            elif _is_numpy(kind):
                found[place] = _NumpyGenerator(item)
    return found


def generator_states(generators: Mapping[str, KeptGenerator]) -> dict[str, Any]:
    """Return the states of generators, as plain data and tensors, by their places."""
    return {place: generator.get_state() for place, generator in generators.items()}


def restore_generators(
    generators: Mapping[str, KeptGenerator], states: Mapping[str, Any] | list[Any]
) -> None:
    """Put states back into the generators at the same places; others stay as they are.

    Args:
        generators: what `generators_in` returned.
        states: what `generator_states` returned; or a list, as in older checkpoints, whose states
            go to the first generators that can take them.
    """
    if isinstance(states, Mapping):
        pairs = [(generators[place], states[place]) for place in states if place in generators]
    else:
        left, pairs = list(generators.values()), []
        for state in states:
            taker = next((generator for generator in left if _can_take(generator, state)), None)
            if taker is not None:
                left.remove(taker)
                pairs.append((taker, state))
    for generator, state in pairs:
        if _can_take(generator, state):
            generator.set_state(state)


def _can_take(generator: KeptGenerator, state: Any) -> bool:
    """Return whether a state is one of a generator of that kind."""
    if isinstance(generator, torch.Generator):
        return isinstance(state, torch.Tensor)
    if isinstance(generator, _PythonGenerator):
        return isinstance(state, tuple | list)
    same: Any = generator.get_state()
    return isinstance(state, dict) and state["bit_generator"] == same["bit_generator"]


def _global_ones() -> set[int]:
    """Return the ids of the generators that random numbers come from where none is named."""
    numpy = sys.modules.get("numpy")
    ones: list[Any] = [torch.default_generator, *torch.cuda.default_generators]
    ones.append(random._inst)  # noqa: SLF001 - reached by way of its methods
    if numpy is not None:
        ones.append(numpy.random.mtrand._rand)  # noqa: SLF001 - likewise
    return {id(one) for one in ones}


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


def _is_numpy(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    return issubclass(kind, (numpy.random.Generator, numpy.random.RandomState))


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
