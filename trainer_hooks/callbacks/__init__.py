"""The built-in callbacks; each is imported when its name is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of
from trainer_hooks.callback import Callback

if TYPE_CHECKING:
    from trainer_hooks.callbacks.averaging.stochastic_weight_averaging import (
        StochasticWeightAveraging,
    )
    from trainer_hooks.callbacks.averaging.weight_averaging import (
        EMAWeightAveraging,
        WeightAveraging,
    )
    from trainer_hooks.callbacks.compression.model_pruning import ModelPruning
    from trainer_hooks.callbacks.compression.quantization_aware_training import (
        QuantizationAwareTraining,
    )
    from trainer_hooks.callbacks.early_stopping import EarlyStopping
    from trainer_hooks.callbacks.exporting.export import export_for_inference
    from trainer_hooks.callbacks.exporting.export_for_inference_callback import (
        ExportForInferenceCallback,
    )
    from trainer_hooks.callbacks.finetuning import BackboneFinetuning, BaseFinetuning
    from trainer_hooks.callbacks.guarding.memory_release import FreeOutputs, GarbageCollection
    from trainer_hooks.callbacks.guarding.nan_guard import NaNGuard
    from trainer_hooks.callbacks.guarding.spike_detection import (
        SpikeDetection,
        TrainingSpikeException,
    )
    from trainer_hooks.callbacks.lambda_callback import LambdaCallback
    from trainer_hooks.callbacks.model_summary import ModelSummary, RichModelSummary
    from trainer_hooks.callbacks.module_preparation import (
        ConvertSyncBatchNormCallback,
        MoveModulesToDeviceCallback,
    )
    from trainer_hooks.callbacks.monitors.activation_monitor import ActivationMonitor
    from trainer_hooks.callbacks.monitors.device_stats_monitor import DeviceStatsMonitor
    from trainer_hooks.callbacks.monitors.gradient_norm_monitor import GradientNormMonitor
    from trainer_hooks.callbacks.monitors.learning_rate_monitor import LearningRateMonitor
    from trainer_hooks.callbacks.monitors.memory_snapshot import MemorySnapshot
    from trainer_hooks.callbacks.monitors.oom_observer import OOMObserver
    from trainer_hooks.callbacks.monitors.profiler import Profiler
    from trainer_hooks.callbacks.monitors.runtime_estimator import RuntimeEstimator
    from trainer_hooks.callbacks.monitors.slow_step_detector import SlowStepDetector
    from trainer_hooks.callbacks.monitors.throughput import (
        Throughput,
        ThroughputMonitor,
        measure_flops,
    )
    from trainer_hooks.callbacks.prediction_writer import BasePredictionWriter, WriteInterval
    from trainer_hooks.callbacks.progress.printing import (
        PrintMetricsCallback,
        PrintProgressCallback,
    )
    from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
    from trainer_hooks.callbacks.progress.rich_progress import RichProgressBar, RichProgressBarTheme
    from trainer_hooks.callbacks.progress.tqdm_progress import TQDMProgressBar
    from trainer_hooks.callbacks.reporting.generate import Generate
    from trainer_hooks.callbacks.reporting.image_visualizer import ImageVisualizer
    from trainer_hooks.callbacks.reporting.mlperf import MLPerfCallback
    from trainer_hooks.callbacks.reporting.notify import Notify
    from trainer_hooks.callbacks.reporting.run_manifest import RunManifest
    from trainer_hooks.callbacks.reporting.sample_inspector import SampleInspector
    from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
    from trainer_hooks.callbacks.saving.load_checkpoint import LoadCheckpoint
    from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
    from trainer_hooks.callbacks.saving.on_exception_checkpoint import OnExceptionCheckpoint
    from trainer_hooks.callbacks.saving.wsd_checkpoint import WSDCheckpointCallback
    from trainer_hooks.callbacks.timer import Timer
    from trainer_hooks.callbacks.tuning.batch_size_finder import BatchSizeFinder
    from trainer_hooks.callbacks.tuning.gradient_accumulation import GradientAccumulationScheduler
    from trainer_hooks.callbacks.tuning.lr_finder import LearningRateFinder
    from trainer_hooks.errors import StopTraining

__all__ = [
    "ActivationMonitor",
    "BackboneFinetuning",
    "BaseFinetuning",
    "BasePredictionWriter",
    "BatchSizeFinder",
    "Callback",
    "Checkpoint",
    "ConvertSyncBatchNormCallback",
    "DeviceStatsMonitor",
    "EMAWeightAveraging",
    "EarlyStopping",
    "ExportForInferenceCallback",
    "FreeOutputs",
    "GarbageCollection",
    "Generate",
    "GradientAccumulationScheduler",
    "GradientNormMonitor",
    "ImageVisualizer",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "LoadCheckpoint",
    "MLPerfCallback",
    "MemorySnapshot",
    "ModelCheckpoint",
    "ModelPruning",
    "ModelSummary",
    "MoveModulesToDeviceCallback",
    "NaNGuard",
    "Notify",
    "OOMObserver",
    "OnExceptionCheckpoint",
    "PrintMetricsCallback",
    "PrintProgressCallback",
    "Profiler",
    "ProgressBar",
    "QuantizationAwareTraining",
    "RichModelSummary",
    "RichProgressBar",
    "RichProgressBarTheme",
    "RunManifest",
    "RuntimeEstimator",
    "SampleInspector",
    "SlowStepDetector",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "StopTraining",
    "TQDMProgressBar",
    "Throughput",
    "ThroughputMonitor",
    "Timer",
    "TrainingSpikeException",
    "WSDCheckpointCallback",
    "WeightAveraging",
    "WriteInterval",
    "export_for_inference",
    "measure_flops",
]

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

_HOMES = {
    "averaging.stochastic_weight_averaging": "StochasticWeightAveraging",
    "averaging.weight_averaging": "EMAWeightAveraging WeightAveraging",
    "compression.model_pruning": "ModelPruning",
    "compression.quantization_aware_training": "QuantizationAwareTraining",
    "early_stopping": "EarlyStopping",
    "exporting.export": "export_for_inference",
    "exporting.export_for_inference_callback": "ExportForInferenceCallback",
    "finetuning": "BackboneFinetuning BaseFinetuning",
    "guarding.memory_release": "FreeOutputs GarbageCollection",
    "guarding.nan_guard": "NaNGuard",
    "guarding.spike_detection": "SpikeDetection TrainingSpikeException",
    "lambda_callback": "LambdaCallback",
    "model_summary": "ModelSummary RichModelSummary",
    "module_preparation": "ConvertSyncBatchNormCallback MoveModulesToDeviceCallback",
    "monitors.activation_monitor": "ActivationMonitor",
    "monitors.device_stats_monitor": "DeviceStatsMonitor",
    "monitors.gradient_norm_monitor": "GradientNormMonitor",
    "monitors.learning_rate_monitor": "LearningRateMonitor",
    "monitors.memory_snapshot": "MemorySnapshot",
    "monitors.oom_observer": "OOMObserver",
    "monitors.profiler": "Profiler",
    "monitors.runtime_estimator": "RuntimeEstimator",
    "monitors.slow_step_detector": "SlowStepDetector",
    "monitors.throughput": "Throughput ThroughputMonitor measure_flops",
    "prediction_writer": "BasePredictionWriter WriteInterval",
    "progress.printing": "PrintMetricsCallback PrintProgressCallback",
    "progress.progress_bar": "ProgressBar",
    "progress.rich_progress": "RichProgressBar RichProgressBarTheme",
    "progress.tqdm_progress": "TQDMProgressBar",
    "reporting.generate": "Generate",
    "reporting.image_visualizer": "ImageVisualizer",
    "reporting.mlperf": "MLPerfCallback",
    "reporting.notify": "Notify",
    "reporting.run_manifest": "RunManifest",
    "reporting.sample_inspector": "SampleInspector",
    "saving.checkpoint": "Checkpoint",
    "saving.load_checkpoint": "LoadCheckpoint",
    "saving.model_checkpoint": "ModelCheckpoint",
    "saving.on_exception_checkpoint": "OnExceptionCheckpoint",
    "saving.wsd_checkpoint": "WSDCheckpointCallback",
    "timer": "Timer",
    "tuning.batch_size_finder": "BatchSizeFinder",
    "tuning.gradient_accumulation": "GradientAccumulationScheduler",
    "tuning.lr_finder": "LearningRateFinder",
    ":trainer_hooks.errors": "StopTraining",
}
"""The public names of each module, relative to this package, or absolute after a colon."""

__getattr__ = loader_of(
    __name__,
    {name: home for home, names in _HOMES.items() for name in names.split()},
    moved={
        name: f"trainer_hooks.compat.{system}.callbacks"
        for system, names in _FOREIGN_NAMES.items()
        for name in names.split()
    },
)


def __dir__() -> list[str]:
    return __all__
