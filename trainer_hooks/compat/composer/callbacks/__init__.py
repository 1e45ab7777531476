"""Composer's callbacks; those that `trainer_hooks.callbacks` has too are subclasses of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from trainer_hooks.callbacks import (
        ExportForInferenceCallback,
        FreeOutputs,
        Generate,
        ImageVisualizer,
        LoadCheckpoint,
        MemorySnapshot,
        MLPerfCallback,
        OOMObserver,
        RuntimeEstimator,
    )
    from trainer_hooks.compat.composer.callbacks.activation_monitor import ActivationMonitor
    from trainer_hooks.compat.composer.callbacks.checkpoint_saver import CheckpointSaver
    from trainer_hooks.compat.composer.callbacks.early_stopper import EarlyStopper, ThresholdStopper
    from trainer_hooks.compat.composer.callbacks.memory_monitor import MemoryMonitor
    from trainer_hooks.compat.composer.callbacks.nan_monitor import NaNMonitor
    from trainer_hooks.compat.composer.callbacks.optimizer_monitor import (
        GradMonitor,
        LRMonitor,
        OptimizerMonitor,
    )
    from trainer_hooks.compat.composer.callbacks.speed_monitor import SpeedMonitor
    from trainer_hooks.compat.composer.callbacks.system_metrics_monitor import SystemMetricsMonitor

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

_FILES = {
    "ActivationMonitor": "activation_monitor",
    "CheckpointSaver": "checkpoint_saver",
    "EarlyStopper ThresholdStopper": "early_stopper",
    "GradMonitor LRMonitor OptimizerMonitor": "optimizer_monitor",
    "MemoryMonitor": "memory_monitor",
    "NaNMonitor": "nan_monitor",
    "SpeedMonitor": "speed_monitor",
    "SystemMetricsMonitor": "system_metrics_monitor",
}
_load = package_getattr(__name__, _FILES)
_SHARED = {*__all__} - {name for names in _FILES for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _SHARED:
        return _load(name)
    # here, since it is loaded only where a callback is used
    from trainer_hooks import callbacks
    from trainer_hooks.compat.composer.core.built_in import built_in

    made = built_in(getattr(callbacks, name), __name__)
    # the next access finds it, so that there is one class
    return globals().setdefault(name, made)


def __dir__() -> list[str]:
    return __all__
