"""Composer's callbacks; those that `trainer_hooks.callbacks` has by the same name are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from trainer_hooks.callbacks import (
        ActivationMonitor,
        ExportForInferenceCallback,
        FreeOutputs,
        Generate,
        ImageVisualizer,
        LoadCheckpoint,
        MemoryMonitor,
        MemorySnapshot,
        MLPerfCallback,
        OOMObserver,
        RuntimeEstimator,
        SystemMetricsMonitor,
    )
    from trainer_hooks.compat.composer.callbacks.checkpoint_saver import CheckpointSaver
    from trainer_hooks.compat.composer.callbacks.early_stopper import EarlyStopper, ThresholdStopper
    from trainer_hooks.compat.composer.callbacks.nan_monitor import NaNMonitor
    from trainer_hooks.compat.composer.callbacks.optimizer_monitor import (
        GradMonitor,
        LRMonitor,
        OptimizerMonitor,
    )
    from trainer_hooks.compat.composer.callbacks.speed_monitor import SpeedMonitor

__all__ = [
    "ActivationMonitor",
    "CheckpointSaver",
    "EarlyStopper",
    "ExportForInferenceCallback",
    "FreeOutputs",
    "Generate",
    "GradMonitor",
    "ImageVisualizer",
    "LRMonitor",
    "LoadCheckpoint",
    "MLPerfCallback",
    "MemoryMonitor",
    "MemorySnapshot",
    "NaNMonitor",
    "OOMObserver",
    "OptimizerMonitor",
    "RuntimeEstimator",
    "SpeedMonitor",
    "SystemMetricsMonitor",
    "ThresholdStopper",
]

__getattr__ = package_getattr(
    __name__,
    {
        **dict.fromkeys(__all__, ":trainer_hooks.callbacks"),
        "CheckpointSaver": "checkpoint_saver",
        "EarlyStopper ThresholdStopper": "early_stopper",
        "GradMonitor LRMonitor OptimizerMonitor": "optimizer_monitor",
        "NaNMonitor": "nan_monitor",
        "SpeedMonitor": "speed_monitor",
    },
)


def __dir__() -> list[str]:
    return __all__
