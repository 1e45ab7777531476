"""The callbacks, at Lightning's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import lightning_getattr

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
    from trainer_hooks.compat.lightning.base_classes import (
        Callback,
    )

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

__getattr__ = lightning_getattr(
    __name__,
    {
        **dict.fromkeys(__all__, ":trainer_hooks.callbacks"),
        "Callback": ":trainer_hooks.compat.lightning.base_classes",
    },
)


def __dir__() -> list[str]:
    return __all__
