"""Profilers: measure where a whole run spends its time, and report it at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.profilers.advanced import AdvancedProfiler
    from trainer_hooks.profilers.profiler import PassThroughProfiler, Profiler, SimpleProfiler
    from trainer_hooks.profilers.pytorch import PyTorchProfiler

__all__ = [
    "AdvancedProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "SimpleProfiler",
]

if not TYPE_CHECKING:  # with it type checkers would accept any name
    __getattr__ = loader_of(
        __name__,
        {
            "AdvancedProfiler": "advanced",
            "PassThroughProfiler": "profiler",
            "Profiler": "profiler",
            "PyTorchProfiler": "pytorch",
            "SimpleProfiler": "profiler",
        },
    )


def __dir__() -> list[str]:
    return __all__
