"""`DeviceStatsMonitor`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import DeviceStatsMonitor

__all__ = ["DeviceStatsMonitor"]
