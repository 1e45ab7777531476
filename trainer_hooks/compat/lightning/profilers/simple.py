"""`SimpleProfiler`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.profilers import SimpleProfiler

__all__ = ["SimpleProfiler"]
