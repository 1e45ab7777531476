"""The order of callbacks: named bands, stable inside a band."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Band", "in_order"]


class Band(IntEnum):
    """When a callback takes its turn at a hook. Inside a band the user's own order holds."""

    TRANSFORM = 10
    """Changes what others see: batches, gradients, weights."""
    OBSERVE = 20
    """Looks on. What a callback does unless it says otherwise."""
    MODULE = 30
    """The module's own hooks."""
    CONTROL = 40
    """Decides on the run, as early stopping does."""
    SINK = 50
    """Shows or writes what the others did, as a progress bar does."""
    SAVE = 60
    """Saves, after everything that belongs into the checkpoint has happened."""


class _Banded(Protocol):
    @property
    def band(self) -> Band: ...


_T = TypeVar("_T", bound=_Banded)


def in_order(callbacks: Iterable[_T]) -> tuple[_T, ...]:
    """Return `callbacks` band by band, the given order kept inside a band."""
    return tuple(sorted(callbacks, key=lambda callback: callback.band))
