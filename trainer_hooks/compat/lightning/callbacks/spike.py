"""`SpikeDetection`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import SpikeDetection, TrainingSpikeException

__all__ = ["SpikeDetection", "TrainingSpikeException"]
