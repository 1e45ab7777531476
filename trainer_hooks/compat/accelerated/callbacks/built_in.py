"""Callbacks of trainer_hooks as those of pytorch-accelerated that they are named for."""

from __future__ import annotations

from trainer_hooks import callbacks
from trainer_hooks.compat.accelerated.built_in_callback import built_in

__all__ = [
    "ConvertSyncBatchNormCallback",
    "LimitBatchesCallback",
    "LimitEvalStepsCallback",
    "ModelEmaCallback",
    "MoveModulesToDeviceCallback",
    "PrintMetricsCallback",
    "PrintProgressCallback",
    "StepBasedEvaluationCallback",
    "WSDCheckpointCallback",
]

_PACKAGE = "trainer_hooks.compat.accelerated.callbacks"

ConvertSyncBatchNormCallback = built_in(callbacks.ConvertSyncBatchNormCallback, _PACKAGE)
LimitBatchesCallback = built_in(callbacks.LimitBatchesCallback, _PACKAGE)
LimitEvalStepsCallback = built_in(callbacks.LimitEvalStepsCallback, _PACKAGE)
ModelEmaCallback = built_in(callbacks.ModelEmaCallback, _PACKAGE)
MoveModulesToDeviceCallback = built_in(callbacks.MoveModulesToDeviceCallback, _PACKAGE)
PrintMetricsCallback = built_in(callbacks.PrintMetricsCallback, _PACKAGE)
PrintProgressCallback = built_in(callbacks.PrintProgressCallback, _PACKAGE)
StepBasedEvaluationCallback = built_in(callbacks.StepBasedEvaluationCallback, _PACKAGE)
WSDCheckpointCallback = built_in(callbacks.WSDCheckpointCallback, _PACKAGE)
