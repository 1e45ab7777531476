"""Find the random generators that data sets, samplers and loaders hold; save and restore them."""

from __future__ import annotations

import functools
import logging
import random
import sys
from collections import deque
from contextlib import suppress
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

from trainer_hooks.runtime.parameter_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
# read from a module, since the names differ among versions of torch. `_contents` follows the
# submodules
_MODULE_INTERNALS = frozenset(vars(torch.nn.Module()))
_RUN_OBJECTS = tuple(
    f"trainer_hooks.{room}."
    for room in (
        "adapters.composer.state", "checkpoint", "clock", "connector", "context", "hooks",
        "loggers", "loops", "metrics", "runtime", "trainer",
        # of the callbacks that a trainer has by default, so that most checkpoints pay for them
        "callbacks.model_summary", "callbacks.progress", "callbacks.saver_base", "callbacks.saving",
        "callbacks.reporting.journal", "callbacks.reporting.run_manifest",
    )
)  # fmt: skip
"""Modules whose objects belong to the run, although a module or callback may refer to them.

They hold no random generators. A user's subclass lies elsewhere, and is searched.
"""


@dataclass(frozen=True, slots=True)
class _ClassTraits:
    """Facts about a class that hold for all its objects.

    Attributes:
        is_leaf: whether an object is data, code or a name, which holds no other object.
        contents: returns the objects that one holds beside its attributes and slots, each after its
            key; None if there are none.
        step: the step of their paths, as a `%` format of the key.
        has_attributes: whether an object has a dict of attributes, and not only slots.
        slots: its slots: index of the class in the MRO, and name.
        skipped_attributes: attributes that are not followed.
    """

    is_leaf: bool
    contents: Callable[[Any], Iterable[tuple[Any, Any]]] | None
    step: str
    has_attributes: bool
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
    # bounded, because data sets and callbacks may hold any number of objects
    remaining, traits_of = _MAX_OBJECTS, _ClassTraitsCache()
    # breadth first: the path of a generator is its key in checkpoints, and the shortest one is the
    # most stable
    queue = deque([] if traits_of[type(owner)].is_leaf else [(name, owner)])
    while queue and remaining:
        path, item = queue.popleft()
        if id(item) in seen_ids:
            continue
        seen_ids.add(id(item))
        remaining -= 1
        yield path, item
        for step, held in _held_by(item, traits_of[type(item)]):
            for key, child in held:
                # leaves are not queued: a list of numbers would use up `_MAX_OBJECTS`. Nor do they
                # get a path, as most objects are leaves
                if not traits_of[type(child)].is_leaf and id(child) not in seen_ids:
                    queue.append((path + step % (key,), child))


def _held_by(item: Any, traits: _ClassTraits) -> Iterator[tuple[str, Iterable[tuple[Any, Any]]]]:
    """Yield the objects that one holds, each after its key, with the format of the path's step."""
    if traits.contents is not None:
        yield traits.step, traits.contents(item)
    if traits.has_attributes:
        # not vars(item): a class may override `__getattribute__` with code that must not run
        try:
            attributes = object.__getattribute__(item, "__dict__").copy()
        except AttributeError:  # of some classes written in C, such as asyncio's Future
            attributes = {}
        for name in traits.skipped_attributes:
            attributes.pop(name, None)
        yield ".%s", attributes.items()
    # through the class that declares the slot: a subclass may use its name for something else
    for index, name in traits.slots:
        with suppress(AttributeError):  # an empty slot
            yield ".%s", [(name, vars(type(item).__mro__[index])[name].__get__(item))]


class _ClassTraitsCache(dict[type, _ClassTraits]):
    """Traits by class for one walk; it keeps classes alive only as long as the walk lasts."""

    def __missing__(self, cls: type) -> _ClassTraits:
        traits = _KNOWN_TRAITS.get(cls)
        if traits is None:
            traits = _KNOWN_TRAITS[cls] = _inspect_class(cls)
        self[cls] = traits
        return traits


# weak keys, for classes that a notebook defines again and again. So the traits must not refer to
# their class: slots are kept by index and name
_KNOWN_TRAITS: WeakKeyDictionary[type, _ClassTraits] = WeakKeyDictionary()


def _inspect_class(cls: type) -> _ClassTraits:
    """Return the traits of a class."""
    # arrays and data frames hold no generators, and may be large
    is_leaf = (
        issubclass(cls, _LEAVES)
        or hasattr(cls, "__array__")
        or f"{cls.__module__}.".startswith(_RUN_OBJECTS)
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
        # the iterator of persistent workers belongs to the epoch, and holds queues and processes
        skipped_attributes |= {"_iterator"}
    # by the class and not by isinstance, which would read an object's own `__class__`
    ways = (way for base, way in _CONTENTS.items() if issubclass(cls, base))
    contents, step = next(ways, (None, ""))
    has_attributes = cls.__dictoffset__ != 0
    return _ClassTraits(is_leaf, contents, step, has_attributes, tuple(slots), skipped_attributes)


def _of_dict(item: Any) -> list[tuple[Any, Any]]:
    # other keys have no stable text for the path
    items = islice(item.items(), _MAX_ITEMS)
    return [(key, child) for key, child in items if isinstance(key, str | int)]


def _of_sequence(item: Any) -> list[tuple[Any, Any]]:
    return list(enumerate(islice(item, _MAX_ITEMS)))


def _of_function(item: Any) -> list[tuple[Any, Any]]:
    held = []
    for name, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
        try:  # noqa: SIM105 - `suppress` takes longer than all the rest
            held.append((name, cell.cell_contents))
        except ValueError:  # a cell that is not set yet
            pass
    return [*held, ("__defaults__", item.__defaults__), ("__kwdefaults__", item.__kwdefaults__)]


def _of_method(item: Any) -> list[tuple[Any, Any]]:
    return [("__self__", item.__self__), ("__func__", getattr(item, "__func__", None))]


def _of_partial(item: Any) -> list[tuple[Any, Any]]:
    return [("func", item.func), ("args", item.args), ("keywords", item.keywords)]


def _of_module(item: Any) -> list[tuple[Any, Any]]:
    return [*item._modules.items()]  # noqa: SLF001 - torch's name


_CONTENTS: dict[type | tuple[type, ...], tuple[Callable[[Any], list[tuple[Any, Any]]], str]] = {
    dict: (_of_dict, "[%r]"),
    (list, tuple, set, frozenset, deque): (_of_sequence, "[%s]"),
    FunctionType: (_of_function, ".%s"),
    # a builtin method as well: `random.Random(0).random` leads to its generator
    (MethodType, BuiltinMethodType): (_of_method, ".%s"),
    functools.partial: (_of_partial, ".%s"),
    torch.nn.Module: (_of_module, ".%s"),
}
"""By the class: the function and the format that are `contents` and `step` of its traits."""


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
        # in one tensor: reading 625 single integers with safe loading is slow
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
        if hasattr(self.generator, "bit_generator"):
            return _to_tensors(self.generator.bit_generator.state)
        # not the default, a tuple: it would lose the cached second normal
        return _to_tensors(self.generator.get_state(legacy=False))

    def set_state(self, state: Any) -> None:
        """Restore a state that `get_state` returned."""
        if hasattr(self.generator, "bit_generator"):
            self.generator.bit_generator.state = _to_arrays(state)
        else:
            self.generator.set_state(_to_arrays(state))


def generators_in(owners: Mapping[str, Any]) -> dict[str, StatefulGenerator]:
    """Return the random generators that objects hold, each once, by path.

    Generators of torch, Python and NumPy are found at any depth: see `walk_objects`. Paths have no
    names of torch's wrappers of compiled layers. Global
    generators are excluded, and one in a global variable is not found.

    Args:
        owners: objects to search, by the first part of the path, such as `"module"`.
    """
    generators: dict[str, StatefulGenerator] = {}
    global_generators = [torch.default_generator, *torch.cuda.default_generators]
    # the global ones can be reached by way of their methods, which objects may hold
    seen_ids = {id(generator) for generator in (*global_generators, random._inst)}  # noqa: SLF001
    numpy = sys.modules.get("numpy")
    of_numpy: tuple[type, ...] = ()
    if numpy is not None:
        seen_ids.add(id(numpy.random.mtrand._rand))  # noqa: SLF001
        of_numpy = numpy.random.Generator, numpy.random.RandomState
    for name, owner in owners.items():
        for path, item in walk_objects(name, owner, seen_ids):
            path, cls = plain_name(path), type(item)
            if issubclass(cls, torch.Generator):
                generators[path] = item
            elif issubclass(cls, random.Random) and not issubclass(cls, random.SystemRandom):
                generators[path] = _PythonGenerator(item)
            elif issubclass(cls, of_numpy):
                generators[path] = _NumpyGenerator(item)
    return generators


def generator_states(generators: Mapping[str, StatefulGenerator]) -> dict[str, Any]:
    """Return the states of generators by path, as plain data and tensors."""
    return {path: generator.get_state() for path, generator in generators.items()}


def restore_generators(
    generators: Mapping[str, StatefulGenerator], states: Mapping[str, Any]
) -> None:
    """Restore the states of the generators at the same paths; other generators are not changed.

    Args:
        generators: return value of `generators_in`.
        states: return value of `generator_states`.
    """
    for path, state in states.items():
        if path in generators and _can_take(generators[path], state):
            generators[path].set_state(state)


def _can_take(generator: StatefulGenerator, state: Any) -> bool:
    """Return whether a state has the type of a generator's state."""
    if isinstance(generator, torch.Generator):
        return isinstance(state, torch.Tensor)
    if isinstance(generator, _PythonGenerator):
        return isinstance(state, tuple | list)
    own_state: Any = generator.get_state()
    # NumPy raises an error for the state of another kind of bit generator.
    return isinstance(state, dict) and state["bit_generator"] == own_state["bit_generator"]


def draw_salt(generator: StatefulGenerator) -> int:
    """Draw a number from 0 to 2**32 - 1 from a generator of any type."""
    if isinstance(generator, torch.Generator):
        return int(torch.randint(2**32, (), generator=generator))
    wrapped: Any = getattr(generator, "generator", None)
    if isinstance(wrapped, random.Random):
        return wrapped.getrandbits(32)
    if hasattr(wrapped, "bit_generator"):
        return int(wrapped.integers(2**32))
    # the default type is C's long, which has 32 bits on Windows
    return int(wrapped.randint(2**32, dtype="uint64"))


def reseed(generator: StatefulGenerator, seed: int) -> None:
    """Seed a generator of any type with a number that is not negative."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
        return
    wrapped: Any = getattr(generator, "generator", None)
    if hasattr(wrapped, "bit_generator"):
        # NumPy's new generators have no method that seeds them again.
        wrapped.bit_generator.state = type(wrapped.bit_generator)(seed).state
    else:
        # NumPy's legacy generator takes seeds below 2**32 only.
        wrapped.seed(seed % 2**32)


def _to_tensors(state: Any) -> Any:
    """Return a state with tensors in place of arrays, which loads with `weights_only=True`."""
    if isinstance(state, dict):
        return {key: _to_tensors(value) for key, value in state.items()}
    if hasattr(state, "__array__"):
        # torch lacks much for unsigned types. Large numbers wrap around here and back again.
        return {"array": torch.from_numpy(state.astype("int64")), "dtype": str(state.dtype)}
    return state.item() if hasattr(state, "item") else state


def _to_arrays(state: Any) -> Any:
    """Return a state with arrays in place of tensors: the inverse of `_to_tensors`."""
    if isinstance(state, dict):
        if state.keys() == {"array", "dtype"}:
            return state["array"].numpy().astype(state["dtype"])
        return {key: _to_arrays(value) for key, value in state.items()}
    return state
