"""`PassThroughProfiler`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.profilers import PassThroughProfiler

__all__ = ["PassThroughProfiler"]
