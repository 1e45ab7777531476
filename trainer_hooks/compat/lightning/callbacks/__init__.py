"""Callbacks, where Lightning has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.callbacks import (
        BackboneFinetuning,
        BaseFinetuning,
        BasePredictionWriter,
        BatchSizeFinder,
        Checkpoint,
        DeviceStatsMonitor,
        EarlyStopping,
        EMAWeightAveraging,
        GradientAccumulationScheduler,
        LambdaCallback,
        LearningRateFinder,
        LearningRateMonitor,
        ModelCheckpoint,
        ModelPruning,
        ModelSummary,
        OnExceptionCheckpoint,
        ProgressBar,
        RichModelSummary,
        RichProgressBar,
        SpikeDetection,
        StochasticWeightAveraging,
        ThroughputMonitor,
        Timer,
        TQDMProgressBar,
        WeightAveraging,
    )
    from trainer_hooks.compat.lightning.callback import Callback

__all__ = [
    "BackboneFinetuning",
    "BaseFinetuning",
    "BasePredictionWriter",
    "BatchSizeFinder",
    "Callback",
    "Checkpoint",
    "DeviceStatsMonitor",
    "EMAWeightAveraging",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelPruning",
    "ModelSummary",
    "OnExceptionCheckpoint",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "TQDMProgressBar",
    "ThroughputMonitor",
    "Timer",
    "WeightAveraging",
]

__getattr__ = loader_of(
    __name__,
    {
        "BackboneFinetuning": ":trainer_hooks.callbacks",
        "BaseFinetuning": ":trainer_hooks.callbacks",
        "BasePredictionWriter": ":trainer_hooks.callbacks",
        "BatchSizeFinder": ":trainer_hooks.callbacks",
        "Checkpoint": ":trainer_hooks.callbacks",
        "DeviceStatsMonitor": ":trainer_hooks.callbacks",
        "EMAWeightAveraging": ":trainer_hooks.callbacks",
        "EarlyStopping": ":trainer_hooks.callbacks",
        "GradientAccumulationScheduler": ":trainer_hooks.callbacks",
        "LambdaCallback": ":trainer_hooks.callbacks",
        "LearningRateFinder": ":trainer_hooks.callbacks",
        "LearningRateMonitor": ":trainer_hooks.callbacks",
        "ModelCheckpoint": ":trainer_hooks.callbacks",
        "ModelPruning": ":trainer_hooks.callbacks",
        "ModelSummary": ":trainer_hooks.callbacks",
        "OnExceptionCheckpoint": ":trainer_hooks.callbacks",
        "ProgressBar": ":trainer_hooks.callbacks",
        "RichModelSummary": ":trainer_hooks.callbacks",
        "RichProgressBar": ":trainer_hooks.callbacks",
        "SpikeDetection": ":trainer_hooks.callbacks",
        "StochasticWeightAveraging": ":trainer_hooks.callbacks",
        "TQDMProgressBar": ":trainer_hooks.callbacks",
        "ThroughputMonitor": ":trainer_hooks.callbacks",
        "Timer": ":trainer_hooks.callbacks",
        "WeightAveraging": ":trainer_hooks.callbacks",
        "Callback": ":trainer_hooks.compat.lightning.callback",
    },
)


def __dir__() -> list[str]:
    return __all__
