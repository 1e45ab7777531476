"""The built-in callbacks; each is imported when its name is first used."""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub

_FOREIGN_NAMES = {
    "composer": (
        "CheckpointSaver EarlyStopper GradMonitor LRMonitor MemoryMonitor NaNMonitor "
        "OptimizerMonitor SpeedMonitor SystemMetricsMonitor ThresholdStopper"
    ),
    "accelerated": (
        "EarlyStoppingCallback LimitBatchesCallback LimitEvalStepsCallback LogMetricsCallback "
        "ModelEmaCallback ProgressBarCallback SaveBestModelCallback SaveTrainingStateCallback "
        "StepBasedEvaluationCallback StopTrainingError TerminateOnNaNCallback"
    ),
    "lightning": "ProgressBarBase",
}
"""Names of other systems for callbacks here, by the `compat` package that offers them."""

__getattr__, __dir__, __all__ = attach_stub(
    __name__,
    moved={
        name: f"trainer_hooks.compat.{system}.callbacks"
        for system, names in _FOREIGN_NAMES.items()
        for name in names.split()
    },
)
