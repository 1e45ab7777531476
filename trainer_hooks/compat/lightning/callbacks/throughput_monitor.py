"""`ThroughputMonitor`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import ThroughputMonitor

__all__ = ["ThroughputMonitor"]
