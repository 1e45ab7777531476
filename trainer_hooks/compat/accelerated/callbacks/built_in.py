"""Callbacks of trainer_hooks as those of pytorch-accelerated that they are named for."""

from __future__ import annotations

from trainer_hooks import callbacks
from trainer_hooks.compat.accelerated.built_in_callback import built_in

__all__ = [
    "ConvertSyncBatchNormCallback",
    "MoveModulesToDeviceCallback",
    "PrintMetricsCallback",
    "PrintProgressCallback",
    "WSDCheckpointCallback",
]

_PACKAGE = "trainer_hooks.compat.accelerated.callbacks"

ConvertSyncBatchNormCallback = built_in(callbacks.ConvertSyncBatchNormCallback, _PACKAGE)
MoveModulesToDeviceCallback = built_in(callbacks.MoveModulesToDeviceCallback, _PACKAGE)
PrintMetricsCallback = built_in(callbacks.PrintMetricsCallback, _PACKAGE)
PrintProgressCallback = built_in(callbacks.PrintProgressCallback, _PACKAGE)
WSDCheckpointCallback = built_in(callbacks.WSDCheckpointCallback, _PACKAGE)
