"""Find the random generators that data sets, samplers and loaders hold; save and restore them."""

from __future__ import annotations

import functools
import logging
import random
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from types import (
    BuiltinMethodType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader

from trainer_hooks.data.fingerprint import fingerprint
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "DrawDetector",
    "StatefulGenerator",
    "draw_salt",
    "generator_states",
    "generators_in",
    "reseed",
    "restore_generators",
    "walk_objects",
]


_MAX_OBJECTS = 2000
_MAX_ITEMS = 64
"""Longer containers hold data, or more of the same."""

_LEAVES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    NoneType,
    type,
    ModuleType,
    torch.Tensor,
    torch.optim.Optimizer,
    logging.Logger,
)
_MODULE_INTERNALS = frozenset(vars(torch.nn.Module()))
_RUN_OBJECTS = tuple(
    f"trainer_hooks.{room}."
    for room in (
        "checkpoint", "clock", "connector", "context", "hooks", "loggers", "loops", "metrics",
        "runtime", "trainer",
    )
)  # fmt: skip
"""Rooms whose objects belong to the run, although a module or callback may refer to them."""


@dataclass(frozen=True, slots=True)
class _ClassTraits:
    """Facts about a class that hold for all its objects.

    Attributes:
        is_leaf: whether an object is data, code or a name, which holds no other object.
        children: yields the objects that it holds beside its attributes, with their step in the
            path.
        slots: its slots: index of the class in the MRO, and name.
        skipped_attributes: attributes that are not followed.
    """

    is_leaf: bool
    children: Callable[[Any], Iterable[tuple[str, Any]]] | None
    slots: tuple[tuple[int, str], ...]
    skipped_attributes: frozenset[str]


def walk_objects(name: str, owner: Any, seen_ids: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield an object and all objects reachable from it, each once with its path, nearest first.

    It follows attributes, slots, items, and the objects that functions, partials and bound methods
    hold. It does not follow tensors, Python modules, classes, loggers and the trainer.

    Args:
        name: first part of the paths.
        owner: object to start from.
        seen_ids: ids of objects to skip; visited ones are added.
    """
    # Bounded, because data sets and callbacks may hold any number of objects.
    remaining, traits_of = _MAX_OBJECTS, _ClassTraitsCache()
    # Breadth first: the path of a generator is its key in checkpoints, and the shortest one is the
    # most stable.
    queue = deque([] if traits_of[type(owner)].is_leaf else [(name, owner)])
    while queue and remaining:
        path, item = queue.popleft()
        if id(item) in seen_ids:
            continue
        seen_ids.add(id(item))
        remaining -= 1
        yield path, item
        for step, child in _children(item, traits_of[type(item)]):
            if id(child) not in seen_ids and not traits_of[type(child)].is_leaf:
                queue.append((path + step, child))


class _ClassTraitsCache(dict[type, _ClassTraits]):
    """Traits by class for one walk; it keeps classes alive only as long as the walk lasts."""

    def __missing__(self, cls: type) -> _ClassTraits:
        traits = _KNOWN_TRAITS.get(cls)
        if traits is None:
            traits = _KNOWN_TRAITS[cls] = _inspect_class(cls)
        self[cls] = traits
        return traits


_KNOWN_TRAITS: WeakKeyDictionary[type, _ClassTraits] = WeakKeyDictionary()


def _inspect_class(cls: type) -> _ClassTraits:
    """Return the traits of a class."""
    is_leaf = (
        issubclass(cls, _LEAVES)
        or hasattr(cls, "__array__")
        or str(cls.__module__).startswith(_RUN_OBJECTS)
    )
    children = next(
        (children for classes, children in _CHILDREN_OF if issubclass(cls, classes)), None
    )
    slots = (
        (path, name)
        for path, base in enumerate(cls.__mro__)
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    )
    skipped_attributes = _MODULE_INTERNALS if issubclass(cls, torch.nn.Module) else frozenset()
    if issubclass(cls, DataLoader):
        # The iterator of persistent workers belongs to the epoch, and holds queues and processes.
        skipped_attributes |= {"_iterator"}
    return _ClassTraits(is_leaf, children, tuple(slots), skipped_attributes)


def _children(item: Any, cls: _ClassTraits) -> Iterator[tuple[str, Any]]:
    """Yield the objects that an object holds, with their step in the path."""
    if cls.children is not None:
        yield from cls.children(item)
    try:
        # Not vars(item): a class may override `__getattribute__` with code that must not run here.
        attributes = object.__getattribute__(item, "__dict__")
    except AttributeError:  # an object with slots only
        attributes = {}
    for name, child in tuple(attributes.items()):
        if name not in cls.skipped_attributes:
            yield f".{name}", child
    for path, name in cls.slots:
        try:
            yield f".{name}", vars(type(item).__mro__[path])[name].__get__(item)
        except AttributeError:  # an empty slot
            continue


def _in_dict(item: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a dict whose keys are texts or integers."""
    for key, child in islice(item.items(), _MAX_ITEMS):
        # Other keys have no stable text for the path.
        if isinstance(key, str | int):
            yield f"[{key!r}]", child


def _in_sequence(item: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the items of a sequence or set."""
    return ((f"[{path}]", child) for path, child in enumerate(islice(item, _MAX_ITEMS)))


def _in_function(item: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the values of a function's closure and its defaults."""
    for name, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # a cell that is not set yet
            continue
    yield from ((".__defaults__", item.__defaults__), (".__kwdefaults__", item.__kwdefaults__))


def _in_module(item: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the children of a torch module."""
    return ((f".{name}", child) for name, child in item._modules.items())  # noqa: SLF001 - as it is


_CHILDREN_OF: tuple[tuple[Any, Callable[[Any], Iterable[tuple[str, Any]]]], ...] = (
    (dict, _in_dict),
    ((list, tuple, set, frozenset, deque), _in_sequence),
    (FunctionType, _in_function),
    (MethodType, lambda item: ((".__self__", item.__self__), (".__func__", item.__func__))),
    (BuiltinMethodType, lambda item: ((".__self__", item.__self__),)),
    (
        functools.partial,
        lambda item: (
            (".func", item.func), (".args", item.args), (".keywords", item.keywords),
        ),
    ),
    (torch.nn.Module, _in_module),
)  # fmt: skip


class StatefulGenerator(Protocol):
    """Protocol of a random generator with a state; `torch.Generator` has it, others are wrapped."""

    def get_state(self) -> Any:
        """Return the state as plain data and tensors."""

    def set_state(self, state: Any) -> Any:
        """Restore a state that `get_state` returned."""


class _PythonGenerator:
    """Wrapper of a `random.Random`."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator

    def get_state(self) -> Any:
        """Return the state with its integers in a tensor."""
        version, internal, gauss = self.generator.getstate()
        return (version, torch.tensor(internal, dtype=torch.int64), gauss)

    def set_state(self, state: Any) -> None:
        """Restore a state that `get_state` returned."""
        version, internal, gauss = state
        self.generator.setstate((version, tuple(internal.tolist()), gauss))


class _NumpyGenerator:
    """Wrapper of a NumPy `Generator`, by its bit generator, or of a `RandomState`."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def get_state(self) -> Any:
        """Return the bit generator's state with tensors in place of arrays."""
        return _to_tensors(self._bit_generator().state)

    def set_state(self, state: Any) -> None:
        """Restore a state that `get_state` returned."""
        self._bit_generator().state = _to_arrays(state)

    def _bit_generator(self) -> Any:
        """Return the object whose attribute `state` holds the state."""
        if hasattr(self.generator, "bit_generator"):
            return self.generator.bit_generator
        return _LegacyBitGenerator(self.generator)


class _LegacyBitGenerator:
    """Wrapper of a `RandomState` whose `state` includes the cached second normal."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    @property
    def state(self) -> Any:
        return self._generator.get_state(legacy=False)

    @state.setter
    def state(self, value: Any) -> None:
        self._generator.set_state(value)


class DrawDetector:
    """Detect whether random numbers were drawn, globally on the host or from given generators.

    Args:
        generators: the generators by path.
    """

    def __init__(self, generators: Mapping[str, StatefulGenerator]) -> None:
        self._generators = generators
        self.restart()

    def restart(self) -> None:
        """Start again: detect only draws from now on."""
        self._states = self._read_states()
        self._random_state = rng.host_random_state()

    @property
    def has_drawn(self) -> bool:
        """Whether a number was drawn since the start."""
        return self._read_states() != self._states or rng.has_drawn_since(self._random_state)

    def _read_states(self) -> dict[str, Any]:
        """Return a fingerprint of each generator's state."""
        states = generator_states(self._generators)
        return {path: fingerprint(state) for path, state in states.items()}


def generators_in(owners: Mapping[str, Any]) -> dict[str, StatefulGenerator]:
    """Return the random generators that objects hold, each once, by path.

    Generators of torch, Python and NumPy are found at any depth: see `walk_objects`. Global
    generators are excluded, and one in a global variable is not found.

    Args:
        owners: objects to search, by the first part of the path, such as `"module"`.
    """
    generators: dict[str, StatefulGenerator] = {}
    seen_ids = _global_generator_ids()
    for name, owner in owners.items():
        for path, item in walk_objects(name, owner, seen_ids):
            cls = type(item)
            if issubclass(cls, torch.Generator):
                generators[path] = item
            elif issubclass(cls, random.Random) and not issubclass(cls, random.SystemRandom):
                generators[path] = _PythonGenerator(item)
            elif _is_numpy(cls):
                generators[path] = _NumpyGenerator(item)
    return generators


def generator_states(generators: Mapping[str, StatefulGenerator]) -> dict[str, Any]:
    """Return the states of generators by path, as plain data and tensors."""
    return {path: generator.get_state() for path, generator in generators.items()}


def restore_generators(
    generators: Mapping[str, StatefulGenerator], states: Mapping[str, Any] | list[Any]
) -> None:
    """Restore the states of the generators at the same paths; other generators are not changed.

    Args:
        generators: return value of `generators_in`.
        states: return value of `generator_states`; or a list, as in older checkpoints, whose states
            go to the first generators of the right type.
    """
    if isinstance(states, Mapping):
        pairs = [(generators[path], states[path]) for path in states if path in generators]
    else:
        remaining, pairs = list(generators.values()), []
        for state in states:
            generator = next(
                (generator for generator in remaining if _can_take(generator, state)), None
            )
            if generator is not None:
                remaining.remove(generator)
                pairs.append((generator, state))
    for generator, state in pairs:
        if _can_take(generator, state):
            generator.set_state(state)


def _can_take(generator: StatefulGenerator, state: Any) -> bool:
    """Return whether a state has the type of a generator's state."""
    if isinstance(generator, torch.Generator):
        return isinstance(state, torch.Tensor)
    if isinstance(generator, _PythonGenerator):
        return isinstance(state, tuple | list)
    own_state: Any = generator.get_state()
    return isinstance(state, dict) and state["bit_generator"] == own_state["bit_generator"]


def _global_generator_ids() -> set[int]:
    """Return the ids of the global generators."""
    numpy = sys.modules.get("numpy")
    generators: list[Any] = [torch.default_generator, *torch.cuda.default_generators]
    generators.append(random._inst)  # noqa: SLF001 - reached by way of its methods
    if numpy is not None:
        generators.append(numpy.random.mtrand._rand)  # noqa: SLF001 - likewise
    return {id(one) for one in generators}


def draw_salt(generator: StatefulGenerator) -> int:
    """Draw a number from 0 to 2**32 - 1 from a generator of any type."""
    if isinstance(generator, torch.Generator):
        return int(torch.randint(2**32, (), generator=generator))
    wrapped: Any = getattr(generator, "generator", None)
    if isinstance(wrapped, random.Random):
        return wrapped.getrandbits(32)
    if hasattr(wrapped, "bit_generator"):
        return int(wrapped.integers(2**32))
    return int(wrapped.randint(2**32, dtype="uint64"))


def reseed(generator: StatefulGenerator, seed: int) -> None:
    """Seed a generator of any type with a number that is not negative."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
        return
    wrapped: Any = getattr(generator, "generator", None)
    if hasattr(wrapped, "bit_generator"):
        wrapped.bit_generator.state = type(wrapped.bit_generator)(seed).state
    else:
        # NumPy's legacy generator takes seeds below 2**32 only.
        wrapped.seed(seed % 2**32)


def _is_numpy(cls: type) -> bool:
    """Return whether a class is one of NumPy's generators."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    return issubclass(cls, (numpy.random.Generator, numpy.random.RandomState))


def _to_tensors(state: Any) -> Any:
    """Return a state with tensors in place of arrays, which loads with `weights_only=True`."""
    if isinstance(state, dict):
        return {key: _to_tensors(value) for key, value in state.items()}
    if hasattr(state, "__array__"):
        return {"array": torch.from_numpy(state.astype("int64")), "dtype": str(state.dtype)}
    return state.item() if hasattr(state, "item") else state


def _to_arrays(state: Any) -> Any:
    """Return a state with arrays in place of tensors: the inverse of `_to_tensors`."""
    if isinstance(state, dict):
        if state.keys() == {"array", "dtype"}:
            return state["array"].numpy().astype(state["dtype"])
        return {key: _to_arrays(value) for key, value in state.items()}
    return state
