"""Composer's callbacks; the ones that are here by the same name are those of trainer_hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

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
    from trainer_hooks.compat.composer.callbacks.early_stopper import EarlyStopper
    from trainer_hooks.compat.composer.callbacks.grad_monitor import GradMonitor
    from trainer_hooks.compat.composer.callbacks.lr_monitor import LRMonitor
    from trainer_hooks.compat.composer.callbacks.nan_monitor import NaNMonitor
    from trainer_hooks.compat.composer.callbacks.optimizer_monitor import OptimizerMonitor
    from trainer_hooks.compat.composer.callbacks.speed_monitor import SpeedMonitor
    from trainer_hooks.compat.composer.callbacks.threshold_stopper import ThresholdStopper

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

__getattr__ = loader_of(
    __name__,
    {
        "ActivationMonitor": ":trainer_hooks.callbacks",
        "CheckpointSaver": "checkpoint_saver",
        "EarlyStopper": "early_stopper",
        "ExportForInferenceCallback": ":trainer_hooks.callbacks",
        "FreeOutputs": ":trainer_hooks.callbacks",
        "Generate": ":trainer_hooks.callbacks",
        "GradMonitor": "grad_monitor",
        "ImageVisualizer": ":trainer_hooks.callbacks",
        "LRMonitor": "lr_monitor",
        "LoadCheckpoint": ":trainer_hooks.callbacks",
        "MLPerfCallback": ":trainer_hooks.callbacks",
        "MemoryMonitor": ":trainer_hooks.callbacks",
        "MemorySnapshot": ":trainer_hooks.callbacks",
        "NaNMonitor": "nan_monitor",
        "OOMObserver": ":trainer_hooks.callbacks",
        "OptimizerMonitor": "optimizer_monitor",
        "RuntimeEstimator": ":trainer_hooks.callbacks",
        "SpeedMonitor": "speed_monitor",
        "SystemMetricsMonitor": ":trainer_hooks.callbacks",
        "ThresholdStopper": "threshold_stopper",
    },
)


def __dir__() -> list[str]:
    return __all__
