"""Random numbers: seed them, take a snapshot, put it back."""

from __future__ import annotations

import os
import random
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import log
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "OwnNumbers",
    "capture",
    "draw_seed",
    "has_moved_since",
    "isolated",
    "moment",
    "reseed",
    "restore",
    "seed_everything",
]

_MAX_SEED = 2**32 - 1


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = True) -> int:
    """Seed Python's, NumPy's and torch's random numbers, on all devices.

    Args:
        seed: from 0 to 2**32 - 1; where None, `PL_GLOBAL_SEED` from the environment, or else 0.
        workers: seed data loader workers as well. torch derives each worker's seeds (Python, NumPy,
            torch) from the main process's generator, so nothing is left to do for it; the argument
            is there for code that was written for Lightning.
        verbose: report the seed at level INFO.

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
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MAX_SEED:
        raise OptionError(f"seed_everything({seed!r}): must be an integer from 0 to {_MAX_SEED}.")
    if verbose:
        log.info("seed set to %d", seed)
    os.environ["PL_GLOBAL_SEED"] = str(seed)
    os.environ["PL_SEED_WORKERS"] = str(int(workers))
    reseed(seed)
    return seed


def reseed(seed: int) -> None:
    """Seed every global generator, and leave the environment alone.

    Args:
        seed: from 0 to 2**32 - 1.
    """
    random.seed(seed)
    numpy = _numpy()
    if numpy is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)


def capture() -> dict[str, Any]:
    """Return the state of every global generator as plain data and tensors.

    Numbers go into tensors: read safely, hundreds of single ones take longer than all the rest.
    """
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": (version, torch.tensor(internal, dtype=torch.int64), gauss),
        "torch": torch.get_rng_state(),
    }
    numpy = _numpy()
    if numpy is not None:
        kind, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = (
            kind,
            torch.from_numpy(keys.astype("int64")),
            int(position),
            int(has_gauss),
            float(cached),
        )
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Put back what `capture` returned, as far as this machine has those generators."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal.tolist()), gauss))
    torch.set_rng_state(state["torch"].cpu())
    numpy = _numpy()
    if numpy is not None and "numpy" in state:
        kind, keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state((kind, keys.tolist(), position, has_gauss, cached))
    if "cuda" in state and torch.cuda.is_available():
        for index, device_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(device_state.cpu(), index)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"].cpu())


@contextmanager
def isolated() -> Iterator[None]:
    """Put the generators back afterwards, so that what ran inside leaves no trace in them."""
    state = capture()
    try:
        yield
    finally:
        restore(state)


def draw_seed(generator: torch.Generator | None = None) -> int:
    """Draw a seed from 0 to 2**32 - 1 from a generator, or from torch's global numbers."""
    return int(torch.randint(_MAX_SEED + 1, (), generator=generator))


def moment() -> tuple[Any, Any, Any]:
    """Return what `has_moved_since` compares with: where the global numbers on the host stand."""
    numpy = _numpy()
    drawn = None if numpy is None else numpy.random.get_state()
    return random.getstate(), torch.get_rng_state(), drawn


def has_moved_since(before: tuple[Any, Any, Any]) -> bool:
    """Return whether a global random number was drawn on the host since a moment."""
    (python, torch_state, drawn), now = before, moment()
    if python != now[0] or not torch.equal(torch_state, now[1]):
        return True
    if drawn is None or now[2] is None:
        return drawn is not now[2]
    return drawn[2:] != now[2][2:] or bool((drawn[1] != now[2][1]).any())


class OwnNumbers:
    """Random numbers that only what runs inside the `with` draws from, and that only it moves on.

    Python's, NumPy's and torch's global functions give them there, on the host. What draws from
    them as it goes then gives the same again, whatever else drew in between.

    Args:
        seed: what they start with, from 0 to 2**32 - 1.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._python: Any = None
        self._torch: Any = None
        self._numpy: Any = None
        self._outer: tuple[Any, Any, Any] = (None, None, None)

    def __enter__(self) -> None:
        numpy = _numpy()
        # the generator object is exchanged: to read a state takes a hundred times as long
        outer = None if numpy is None else numpy.random.get_bit_generator()
        self._outer = (random.getstate(), torch.get_rng_state(), outer)
        if self._python is None:
            random.seed(self._seed)
            torch.set_rng_state(_seeded(self._seed, like=self._outer[1]))
        else:
            random.setstate(self._python)
            torch.set_rng_state(self._torch)
        if numpy is not None:
            self._numpy = self._numpy or numpy.random.MT19937(self._seed)
            numpy.random.set_bit_generator(self._numpy)

    def __exit__(self, *error: object) -> None:
        self._python, self._torch = random.getstate(), torch.get_rng_state()
        python, torch_state, numpy_outer = self._outer
        random.setstate(python)
        torch.set_rng_state(torch_state)
        if numpy_outer is not None:
            numpy = _numpy()
            numpy.random.set_bit_generator(numpy_outer)


def _seeded(seed: int, like: torch.Tensor) -> torch.Tensor:
    """Return a state of torch's numbers on the host, with the `initial_seed` of another."""
    state = torch.Generator().manual_seed(seed).get_state()
    # its first eight bytes: workers that are started inside are to be told the run's seed
    state[:8] = like[:8]
    return state


def _numpy() -> Any:
    """Return NumPy if it is in use in this process; torch runs without it."""
    return sys.modules.get("numpy")
