"""Profilers by their names in `Trainer(profiler=...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.profilers.profiler import Profiler

__all__ = ["NAMES", "make_profiler"]

NAMES = ("simple", "advanced", "pytorch")
"""What `make_profiler` takes."""


def make_profiler(given: str | Profiler) -> Profiler:
    """Return the profiler of a name; one that is a profiler already as it is."""
    if not isinstance(given, str):
        return given
    if given.lower() == "simple":
        from trainer_hooks.profilers.simple import SimpleProfiler

        return SimpleProfiler()
    if given.lower() == "advanced":
        from trainer_hooks.profilers.advanced import AdvancedProfiler

        return AdvancedProfiler()
    from trainer_hooks.profilers.pytorch import PyTorchProfiler

    return PyTorchProfiler()
