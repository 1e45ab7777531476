"""The profilers, at Lightning's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import lightning_getattr

if TYPE_CHECKING:
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

__getattr__ = lightning_getattr(__name__, dict.fromkeys(__all__, ":trainer_hooks.profilers"))


def __dir__() -> list[str]:
    return __all__
