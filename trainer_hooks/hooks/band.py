"""Bands: the named sections of the callback order."""

from __future__ import annotations

from enum import IntEnum


class Band(IntEnum):
    """A section of the callback order, lowest first. Inside a band the user's order holds."""

    TRANSFORM = 10
    """Changes batches, gradients or weights before other callbacks read them."""
    OBSERVE = 20
    """Only reads. The band of a callback that does not set another."""
    MODULE = 30
    """The module's own hooks."""
    CONTROL = 40
    """Controls the run, as early stopping does."""
    SINK = 50
    """Shows or writes the results of other callbacks, as a progress bar does."""
    SAVE = 60
    """Saves, after all other callbacks have changed the state that the checkpoint holds."""
