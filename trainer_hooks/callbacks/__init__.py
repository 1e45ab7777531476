"""The built-in callbacks; each is imported when its name is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of
from trainer_hooks.callback import Callback

if TYPE_CHECKING:
    from trainer_hooks.callbacks.averaging.model_ema import ModelEmaCallback
    from trainer_hooks.callbacks.averaging.stochastic_weight_averaging import (
        StochasticWeightAveraging,
    )
    from trainer_hooks.callbacks.averaging.weight_averaging import (
        EMAWeightAveraging,
        WeightAveraging,
    )
    from trainer_hooks.callbacks.batch_limits import (
        LimitBatchesCallback,
        LimitEvalStepsCallback,
        StepBasedEvaluationCallback,
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
    from trainer_hooks.callbacks.monitors.device_stats_monitor import (
        DeviceStatsMonitor,
        SystemMetricsMonitor,
    )
    from trainer_hooks.callbacks.monitors.gradient_norm_monitor import GradientNormMonitor
    from trainer_hooks.callbacks.monitors.learning_rate_monitor import LearningRateMonitor
    from trainer_hooks.callbacks.monitors.memory_monitor import MemoryMonitor
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
    from trainer_hooks.callbacks.prediction_writer import (
        BasePredictionWriter,
        WriteInterval,
    )
    from trainer_hooks.callbacks.progress.printing import (
        PrintMetricsCallback,
        PrintProgressCallback,
    )
    from trainer_hooks.callbacks.progress.progress_bar import ProgressBar, ProgressBarBase
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
    from trainer_hooks.errors import StopTraining, StopTrainingError

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
    "LimitBatchesCallback",
    "LimitEvalStepsCallback",
    "LoadCheckpoint",
    "MLPerfCallback",
    "MemoryMonitor",
    "MemorySnapshot",
    "ModelCheckpoint",
    "ModelEmaCallback",
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
    "ProgressBarBase",
    "QuantizationAwareTraining",
    "RichModelSummary",
    "RichProgressBar",
    "RichProgressBarTheme",
    "RunManifest",
    "RuntimeEstimator",
    "SampleInspector",
    "SlowStepDetector",
    "SpikeDetection",
    "StepBasedEvaluationCallback",
    "StochasticWeightAveraging",
    "StopTraining",
    "StopTrainingError",
    "SystemMetricsMonitor",
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
    "CheckpointSaver": "composer",
    "EarlyStopper": "composer",
    "EarlyStoppingCallback": "accelerated",
    "GradMonitor": "composer",
    "LRMonitor": "composer",
    "LogMetricsCallback": "accelerated",
    "NaNMonitor": "composer",
    "OptimizerMonitor": "composer",
    "ProgressBarCallback": "accelerated",
    "SaveBestModelCallback": "accelerated",
    "SaveTrainingStateCallback": "accelerated",
    "SpeedMonitor": "composer",
    "TerminateOnNaNCallback": "accelerated",
    "ThresholdStopper": "composer",
}
"""Names of other systems for callbacks here, and the `compat` package that offers each."""

__getattr__ = loader_of(
    __name__,
    {
        "ActivationMonitor": "monitors.activation_monitor",
        "BackboneFinetuning": "finetuning",
        "BaseFinetuning": "finetuning",
        "BasePredictionWriter": "prediction_writer",
        "BatchSizeFinder": "tuning.batch_size_finder",
        "Checkpoint": "saving.checkpoint",
        "ConvertSyncBatchNormCallback": "module_preparation",
        "DeviceStatsMonitor": "monitors.device_stats_monitor",
        "EMAWeightAveraging": "averaging.weight_averaging",
        "EarlyStopping": "early_stopping",
        "ExportForInferenceCallback": "exporting.export_for_inference_callback",
        "FreeOutputs": "guarding.memory_release",
        "GarbageCollection": "guarding.memory_release",
        "Generate": "reporting.generate",
        "GradientAccumulationScheduler": "tuning.gradient_accumulation",
        "GradientNormMonitor": "monitors.gradient_norm_monitor",
        "ImageVisualizer": "reporting.image_visualizer",
        "LambdaCallback": "lambda_callback",
        "LearningRateFinder": "tuning.lr_finder",
        "LearningRateMonitor": "monitors.learning_rate_monitor",
        "LimitBatchesCallback": "batch_limits",
        "LimitEvalStepsCallback": "batch_limits",
        "LoadCheckpoint": "saving.load_checkpoint",
        "MLPerfCallback": "reporting.mlperf",
        "MemoryMonitor": "monitors.memory_monitor",
        "MemorySnapshot": "monitors.memory_snapshot",
        "ModelCheckpoint": "saving.model_checkpoint",
        "ModelEmaCallback": "averaging.model_ema",
        "ModelPruning": "compression.model_pruning",
        "ModelSummary": "model_summary",
        "MoveModulesToDeviceCallback": "module_preparation",
        "NaNGuard": "guarding.nan_guard",
        "Notify": "reporting.notify",
        "OOMObserver": "monitors.oom_observer",
        "OnExceptionCheckpoint": "saving.on_exception_checkpoint",
        "PrintMetricsCallback": "progress.printing",
        "PrintProgressCallback": "progress.printing",
        "Profiler": "monitors.profiler",
        "ProgressBar": "progress.progress_bar",
        "ProgressBarBase": "progress.progress_bar",
        "QuantizationAwareTraining": "compression.quantization_aware_training",
        "RichModelSummary": "model_summary",
        "RichProgressBar": "progress.rich_progress",
        "RichProgressBarTheme": "progress.rich_progress",
        "RunManifest": "reporting.run_manifest",
        "RuntimeEstimator": "monitors.runtime_estimator",
        "SampleInspector": "reporting.sample_inspector",
        "SlowStepDetector": "monitors.slow_step_detector",
        "SpikeDetection": "guarding.spike_detection",
        "StepBasedEvaluationCallback": "batch_limits",
        "StochasticWeightAveraging": "averaging.stochastic_weight_averaging",
        "StopTraining": ":trainer_hooks.errors",
        "StopTrainingError": ":trainer_hooks.errors",
        "SystemMetricsMonitor": "monitors.device_stats_monitor",
        "TQDMProgressBar": "progress.tqdm_progress",
        "Throughput": "monitors.throughput",
        "ThroughputMonitor": "monitors.throughput",
        "Timer": "timer",
        "TrainingSpikeException": "guarding.spike_detection",
        "WSDCheckpointCallback": "saving.wsd_checkpoint",
        "WeightAveraging": "averaging.weight_averaging",
        "WriteInterval": "prediction_writer",
        "export_for_inference": "exporting.export",
        "measure_flops": "monitors.throughput",
    },
    moved={
        name: f"trainer_hooks.compat.{system}.callbacks" for name, system in _FOREIGN_NAMES.items()
    },
)


def __dir__() -> list[str]:
    return __all__
