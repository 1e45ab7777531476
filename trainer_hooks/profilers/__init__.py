"""Profilers of a whole run: what it spends its time on, told when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.profilers.advanced import AdvancedProfiler
    from trainer_hooks.profilers.pass_through import PassThroughProfiler
    from trainer_hooks.profilers.profiler import Profiler
    from trainer_hooks.profilers.pytorch import PyTorchProfiler
    from trainer_hooks.profilers.simple import SimpleProfiler

__all__ = [
    "AdvancedProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "SimpleProfiler",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "AdvancedProfiler": "advanced",
            "PassThroughProfiler": "pass_through",
            "Profiler": "profiler",
            "PyTorchProfiler": "pytorch",
            "SimpleProfiler": "simple",
        },
    )


def __dir__() -> list[str]:
    return __all__
