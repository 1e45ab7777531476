"""Seeds and deterministic algorithms."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.compat.composer.utils import dist
from trainer_hooks.runtime.rng import capture, isolated, restore, seed_everything

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MAX_SEED",
    "configure_deterministic_mode",
    "get_random_seed",
    "get_rng_state",
    "load_rng_state",
    "seed_all",
    "seed_context",
]

MAX_SEED = 2**32 - 1
"""The largest seed."""


def get_random_seed() -> int:
    """Return a seed that is drawn from the clock, one for each process."""
    # a generator of its own: the global ones stay as they are
    drawn = random.Random(time.time_ns()).randrange(MAX_SEED + 1)
    return (drawn + dist.get_global_rank()) % (MAX_SEED + 1)


def get_rng_state() -> list[dict[str, Any]]:
    """Return the states of the random generators of all processes, by rank."""
    return dist.all_gather_object(capture())


def load_rng_state(rng_state_dicts: list[dict[str, Any]]) -> None:
    """Restore this process's state of the random generators.

    Args:
        rng_state_dicts: the value of `get_rng_state`; a process that it does not hold keeps its own
            state.
    """
    rank = dist.get_global_rank()
    if rank < len(rng_state_dicts):
        restore(rng_state_dicts[rank])


@contextmanager
def seed_context(seed: int) -> Iterator[None]:
    """Seed all random generators for the length of a context.

    Args:
        seed: from 0 to `MAX_SEED`.
    """
    with isolated():
        seed_all(seed)
        yield


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    seed_everything(seed)


def configure_deterministic_mode() -> None:
    """Make torch use deterministic algorithms, and raise an error where it has none."""
    torch.use_deterministic_algorithms(True)
    # the benchmark may choose another algorithm in another run
    torch.backends.cudnn.benchmark = False
