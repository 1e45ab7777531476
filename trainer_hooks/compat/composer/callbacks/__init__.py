"""Composer's callbacks; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_hooks.callbacks import (
        ActivationMonitor,
        CheckpointSaver,
        EarlyStopper,
        ExportForInferenceCallback,
        FreeOutputs,
        Generate,
        GradMonitor,
        ImageVisualizer,
        LoadCheckpoint,
        LRMonitor,
        MemoryMonitor,
        MemorySnapshot,
        MLPerfCallback,
        NaNMonitor,
        OOMObserver,
        OptimizerMonitor,
        RuntimeEstimator,
        SpeedMonitor,
        SystemMetricsMonitor,
        ThresholdStopper,
    )

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


def __getattr__(name: str) -> Any:
    from trainer_hooks import callbacks

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(callbacks, name)


def __dir__() -> list[str]:
    return __all__
