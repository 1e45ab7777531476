"""The built-in callbacks; each is imported when its name is first used."""

from __future__ import annotations

from functools import partial

from trainer_hooks._lazy import attach_stub, loader_of

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

_MOVED = {
    name: f"trainer_hooks.compat.{system}.callbacks"
    for system, names in _FOREIGN_NAMES.items()
    for name in names.split()
}

__getattr__, __dir__, __all__ = attach_stub(__name__, partial(loader_of, moved=_MOVED))
