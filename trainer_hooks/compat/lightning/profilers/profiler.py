"""`Profiler`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.profilers import Profiler

__all__ = ["Profiler"]
