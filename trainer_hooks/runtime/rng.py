"""Seed, save and restore the random state of Python, NumPy and torch."""

from __future__ import annotations

import os
import random
import sys
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, SupportsInt

import torch

from trainer_hooks._log import log
from trainer_hooks._options import answers_keywords
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_SEED = 2**32 - 1


@answers_keywords
def seed_everything(
    seed: SupportsInt | str | None = None, workers: bool = False, verbose: bool = True
) -> int:
    """Seed the random generators of Python, NumPy and torch, on all devices.

    Args:
        seed: an integer from 0 to 2**32 - 1, or a value that stands for one, such as `"7"` and
            `np.int64(7)`; if None, `PL_GLOBAL_SEED` from the environment, or else 0.
        workers: accepted for code that was written for Lightning. torch derives the seeds of each
            data loader worker (Python, NumPy, torch) from the main process's generator in any case.
        verbose: whether to log the seed at level INFO.

    Returns:
        The seed.

    Raises:
        OptionError: the seed is not an integer of that range.
    """
    if seed is None:
        seed_text = os.environ.get("PL_GLOBAL_SEED", "0")
        try:
            seed = int(seed_text)
        except ValueError:
            raise OptionError(
                f"PL_GLOBAL_SEED={seed_text!r} in the environment: must be an integer."
            ) from None
    number = _integer(seed)
    if number is None or not 0 <= number <= _MAX_SEED:
        raise OptionError(f"seed_everything({seed!r}): must be an integer from 0 to {_MAX_SEED}.")
    if verbose:
        log.info("seed set to %d", number)
    # processes that this one starts seed themselves from these variables, as with Lightning
    os.environ["PL_GLOBAL_SEED"] = str(number)
    os.environ["PL_SEED_WORKERS"] = str(int(workers))
    reseed(number)
    return number


def _integer(value: Any) -> int | None:
    """Return a value as an int; None if it is a bool, or no integer."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    # of a tensor of several elements a RuntimeError
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    # int() cuts what follows the point off
    return number if isinstance(value, str) or number == value else None


def reseed(seed: int) -> None:
    """Seed every global generator without a change of the environment.

    Args:
        seed: from 0 to 2**32 - 1.
    """
    random.seed(seed)
    numpy = _numpy()
    if numpy is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)


def capture() -> dict[str, Any]:
    """Return the state of every global generator as plain data and tensors."""
    state = plain_states(host_random_state())
    # reading the state would initialise CUDA in a process that does not use it
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def plain_states(states: dict[str, Any]) -> dict[str, Any]:
    """Return states of `host_random_state` as plain data and tensors.

    Integers are stored in tensors: with safe loading, hundreds of single ones are slower to read
    than the rest of a small checkpoint. Those of 32 bits take four bytes each, since a file holds
    the states of each rank; torch has few functions for unsigned ones, so they are signed.
    """
    plain = dict(states)
    if "python" in states:
        version, internal, next_gaussian = states["python"]
        # by an array: a tensor of a tuple of integers takes seven times as long
        words = torch.frombuffer(array("I", internal), dtype=torch.int32)
        plain["python"] = (version, words, next_gaussian)
    if "numpy" in states:
        generator_name, keys, position, has_gauss, cached = states["numpy"]
        plain["numpy"] = (
            generator_name,
            torch.from_numpy(keys.view("int32")),
            int(position),
            int(has_gauss),
            float(cached),
        )
    return plain


def raw_states(plain: dict[str, Any]) -> dict[str, Any]:
    """Return states as `host_random_state` does: the inverse of `plain_states`."""
    states = {}
    if "python" in plain:
        version, internal, next_gaussian = plain["python"]
        states["python"] = (version, tuple(_unsigned(internal).tolist()), next_gaussian)
    if "torch" in plain:
        # on the host: loading with a map_location may have moved the state to the device
        states["torch"] = plain["torch"].cpu()
    if "numpy" in plain and _numpy() is not None:
        generator_name, keys, *rest = plain["numpy"]
        states["numpy"] = (generator_name, _unsigned(keys).numpy().astype("uint32"), *rest)
    return states


def shorten(plain: dict[str, Any]) -> dict[str, Any]:
    """Return states of `plain_states` with the seed alone where nothing was drawn since.

    The seed is that of torch's generator, with which `reseed` has seeded the others too.
    """
    seed = int(plain["torch"][:8].view(torch.int64))
    if not 0 <= seed <= _MAX_SEED:
        return plain
    raw = raw_states(plain)
    drawn = libraries_drawn_from(_states_of_seed(seed, raw), raw)
    return {
        name: {"seed": seed} if name in raw and name not in drawn else state
        for name, state in plain.items()
    }


def is_seed(state: Any) -> bool:
    """Return whether a state is one that `shorten` replaced by a seed."""
    return isinstance(state, dict) and set(state) == {"seed"}


def expand(shortened: dict[str, Any]) -> dict[str, Any]:
    """Return the states of which `shorten` left the seeds alone."""
    states = dict(shortened)
    for name, state in shortened.items():
        if is_seed(state):
            seed = state["seed"]
            if type(seed) is not int or not 0 <= seed <= _MAX_SEED:
                raise ValueError(f"the seed of {name!r} is {seed!r}")
            # without NumPy's, if this process has not imported it
            states.pop(name)
            states.update(plain_states(_states_of_seed(seed, [name])))
    return states


def _states_of_seed(seed: int, libraries: Iterable[str]) -> dict[str, Any]:
    """Return states of `host_random_state` right after `reseed`."""
    states: dict[str, Any] = {}
    if "python" in libraries:
        states["python"] = random.Random(seed).getstate()
    if "torch" in libraries:
        states["torch"] = torch.Generator().manual_seed(seed).get_state()
    numpy = _numpy()
    if "numpy" in libraries and numpy is not None:
        states["numpy"] = numpy.random.RandomState(seed).get_state()
    return states


def _unsigned(words: torch.Tensor) -> torch.Tensor:
    """Return words of 32 bits as numbers from 0 on."""
    return words.cpu().to(torch.int64).bitwise_and(0xFFFFFFFF)


def restore(state: dict[str, Any]) -> None:
    """Restore states that `capture` returned, for the generators that this machine has."""
    # a checkpoint without one of these was changed
    state["python"], state["torch"]
    restore_host(raw_states(state))
    if "cuda" in state and torch.cuda.is_available():
        # the checkpoint may come from a machine with more GPUs
        for index, device_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(device_state.cpu(), index)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"].cpu())


@contextmanager
def isolated() -> Iterator[None]:
    """Restore all global generators afterwards, so that code inside leaves no trace in them."""
    state = capture()
    try:
        yield
    finally:
        restore(state)


def draw_seed() -> int:
    """Draw a seed from 0 to 2**32 - 1 from torch's global generator."""
    return int(torch.randint(_MAX_SEED + 1, ()))


_LIBRARIES = ("python", "torch", "numpy")


def host_random_state(libraries: Iterable[str] = _LIBRARIES) -> dict[str, Any]:
    """Return the states of the global generators on the host, by library.

    NumPy's is left out if this process has not imported it.
    """
    states: dict[str, Any] = {}
    if "python" in libraries:
        states["python"] = random.getstate()
    if "torch" in libraries:
        states["torch"] = torch.get_rng_state()
    numpy = _numpy()
    if "numpy" in libraries and numpy is not None:
        states["numpy"] = numpy.random.get_state()
    return states


def restore_host(states: dict[str, Any]) -> None:
    """Restore states that `host_random_state` returned."""
    if "python" in states:
        random.setstate(states["python"])
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])


def libraries_drawn_from(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the libraries whose states, of `host_random_state`, differ."""
    return [name for name in after if name not in before or _differ(before[name], after[name])]


def has_drawn_since(previous: dict[str, Any]) -> bool:
    """Return whether a global random number was drawn on the host since `previous` was read."""
    return bool(libraries_drawn_from(previous, host_random_state()))


def _differ(before: Any, after: Any) -> bool:
    """Return whether two states of one library's global generator differ."""
    if isinstance(before, torch.Tensor):
        return not torch.equal(before, after)
    if hasattr(before[1], "dtype"):  # NumPy's, which has its keys in an array
        return bool(before[2:] != after[2:]) or bool((before[1] != after[1]).any())
    return bool(before != after)


class SeparateRandomState:
    """A random state that only code inside the `with` draws from.

    Inside, the global functions of Python, NumPy and torch draw from it, on the host. Code that
    draws its random numbers over many such contexts gets the same ones again, whatever was drawn
    outside in between.

    Args:
        seed: initial seed, from 0 to 2**32 - 1.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._python: Any = None
        self._torch: Any = None
        self._numpy: Any = None
        self._outer_states: tuple[Any, Any, Any] = (None, None, None)

    def __enter__(self) -> None:
        numpy = _numpy()
        # NumPy's bit generator object is swapped: reading its state takes a hundred times as long.
        outer_numpy = None if numpy is None else numpy.random.get_bit_generator()
        self._outer_states = (random.getstate(), torch.get_rng_state(), outer_numpy)
        if self._python is None:
            random.seed(self._seed)
            state = torch.Generator().manual_seed(self._seed).get_state()
            # the first eight bytes hold the initial seed, from which DataLoader derives the seeds
            # of workers: those that start inside must get the run's
            state[:8] = self._outer_states[1][:8]
            torch.set_rng_state(state)
        else:
            random.setstate(self._python)
            torch.set_rng_state(self._torch)
        if numpy is not None:
            # MT19937 is the bit generator of NumPy's global functions.
            self._numpy = self._numpy or numpy.random.MT19937(self._seed)
            numpy.random.set_bit_generator(self._numpy)

    def __exit__(self, *error: object) -> None:
        self._python, self._torch = random.getstate(), torch.get_rng_state()
        python, torch_state, numpy_outer = self._outer_states
        random.setstate(python)
        torch.set_rng_state(torch_state)
        if numpy_outer is not None:
            numpy = _numpy()
            numpy.random.set_bit_generator(numpy_outer)


def _numpy() -> Any:
    """Return the module NumPy if this process has imported it, else None."""
    return sys.modules.get("numpy")
