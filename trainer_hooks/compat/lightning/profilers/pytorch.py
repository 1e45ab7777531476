"""`PyTorchProfiler`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.profilers import PyTorchProfiler

__all__ = ["PyTorchProfiler"]
