"""PassThroughProfiler: measures nothing."""

from __future__ import annotations

from trainer_hooks.profilers.profiler import Profiler

__all__ = ["PassThroughProfiler"]


class PassThroughProfiler(Profiler):
    """Measure nothing: what `trainer.profiler` is where none was given.

    So a module may always write `with self.trainer.profiler.profile("name")`.
    """

    def start(self, action_name: str) -> None:
        """Do nothing."""

    def stop(self, action_name: str) -> None:
        """Do nothing."""
