"""The callbacks that come with trainer_hooks."""

from __future__ import annotations

from trainer_hooks.callbacks.checkpoint import Checkpoint
from trainer_hooks.callbacks.early_stopping import EarlyStopping
from trainer_hooks.callbacks.lr_monitor import LearningRateMonitor
from trainer_hooks.callbacks.model_checkpoint import ModelCheckpoint
from trainer_hooks.callbacks.timer import Timer

__all__ = [
    "Checkpoint",
    "EarlyStopping",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "Timer",
]
