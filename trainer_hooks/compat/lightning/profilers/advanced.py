"""`AdvancedProfiler`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.profilers import AdvancedProfiler

__all__ = ["AdvancedProfiler"]
