"""Profilers, where Lightning has them."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing
from trainer_hooks.profilers import (
    AdvancedProfiler,
    PassThroughProfiler,
    Profiler,
    PyTorchProfiler,
    SimpleProfiler,
)

__all__ = [
    "AdvancedProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "SimpleProfiler",
]

__getattr__ = refusing(
    __name__,
    {
        "XLAProfiler": "there are no TPUs here: take PyTorchProfiler",
    },
)
