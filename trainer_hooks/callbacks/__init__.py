"""The callbacks that come with trainer_hooks; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of
from trainer_hooks.callback import Callback

if TYPE_CHECKING:
    from trainer_hooks.callbacks.averaging.ema_weight_averaging import EMAWeightAveraging
    from trainer_hooks.callbacks.averaging.model_ema import ModelEmaCallback
    from trainer_hooks.callbacks.averaging.stochastic_weight_averaging import (
        StochasticWeightAveraging,
    )
    from trainer_hooks.callbacks.averaging.weight_averaging import WeightAveraging
    from trainer_hooks.callbacks.compression.model_pruning import ModelPruning
    from trainer_hooks.callbacks.compression.quantization_aware_training import (
        QuantizationAwareTraining,
    )
    from trainer_hooks.callbacks.exporting.export import export_for_inference
    from trainer_hooks.callbacks.exporting.export_for_inference_callback import (
        ExportForInferenceCallback,
    )
    from trainer_hooks.callbacks.finetuning.backbone_finetuning import BackboneFinetuning
    from trainer_hooks.callbacks.finetuning.base_finetuning import BaseFinetuning
    from trainer_hooks.callbacks.guarding.free_outputs import FreeOutputs
    from trainer_hooks.callbacks.guarding.garbage_collection import GarbageCollection
    from trainer_hooks.callbacks.guarding.nan_guard import NaNGuard
    from trainer_hooks.callbacks.guarding.spike_detection import (
        SpikeDetection,
        TrainingSpikeException,
    )
    from trainer_hooks.callbacks.lambda_callback import LambdaCallback
    from trainer_hooks.callbacks.limiting.limit_batches import LimitBatchesCallback
    from trainer_hooks.callbacks.limiting.limit_eval_steps import LimitEvalStepsCallback
    from trainer_hooks.callbacks.limiting.step_based_evaluation import StepBasedEvaluationCallback
    from trainer_hooks.callbacks.placing.convert_sync_batch_norm import ConvertSyncBatchNormCallback
    from trainer_hooks.callbacks.placing.move_modules_to_device import MoveModulesToDeviceCallback
    from trainer_hooks.callbacks.progress.print_metrics import PrintMetricsCallback
    from trainer_hooks.callbacks.progress.print_progress import PrintProgressCallback
    from trainer_hooks.callbacks.progress.progress_bar import ProgressBar, ProgressBarBase
    from trainer_hooks.callbacks.progress.rich_progress import RichProgressBar, RichProgressBarTheme
    from trainer_hooks.callbacks.progress.tqdm_progress import TQDMProgressBar
    from trainer_hooks.callbacks.reporting.generate import Generate
    from trainer_hooks.callbacks.reporting.image_visualizer import ImageVisualizer
    from trainer_hooks.callbacks.reporting.mlperf_callback import MLPerfCallback
    from trainer_hooks.callbacks.reporting.notify import Notify
    from trainer_hooks.callbacks.reporting.run_manifest import RunManifest
    from trainer_hooks.callbacks.reporting.sample_inspector import SampleInspector
    from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
    from trainer_hooks.callbacks.saving.load_checkpoint import LoadCheckpoint
    from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
    from trainer_hooks.callbacks.saving.on_exception_checkpoint import OnExceptionCheckpoint
    from trainer_hooks.callbacks.saving.wsd_checkpoint import WSDCheckpointCallback
    from trainer_hooks.callbacks.stopping.early_stopping import EarlyStopping
    from trainer_hooks.callbacks.stopping.stop_training import StopTraining, StopTrainingError
    from trainer_hooks.callbacks.stopping.timer import Timer
    from trainer_hooks.callbacks.summary.model_summary import ModelSummary
    from trainer_hooks.callbacks.summary.rich_model_summary import RichModelSummary
    from trainer_hooks.callbacks.tuning.accumulation import GradientAccumulationScheduler
    from trainer_hooks.callbacks.tuning.batch_size_finder import BatchSizeFinder
    from trainer_hooks.callbacks.tuning.lr_finder import LearningRateFinder
    from trainer_hooks.callbacks.watching.activation_monitor import ActivationMonitor
    from trainer_hooks.callbacks.watching.device_stats_monitor import DeviceStatsMonitor
    from trainer_hooks.callbacks.watching.gradient_norm_monitor import GradientNormMonitor
    from trainer_hooks.callbacks.watching.lr_monitor import LearningRateMonitor
    from trainer_hooks.callbacks.watching.memory_monitor import MemoryMonitor
    from trainer_hooks.callbacks.watching.memory_snapshot import MemorySnapshot
    from trainer_hooks.callbacks.watching.oom_observer import OOMObserver
    from trainer_hooks.callbacks.watching.peak_flops import measure_flops
    from trainer_hooks.callbacks.watching.profiler import Profiler
    from trainer_hooks.callbacks.watching.runtime_estimator import RuntimeEstimator
    from trainer_hooks.callbacks.watching.slow_step_detector import SlowStepDetector
    from trainer_hooks.callbacks.watching.system_metrics_monitor import SystemMetricsMonitor
    from trainer_hooks.callbacks.watching.throughput import Throughput
    from trainer_hooks.callbacks.watching.throughput_monitor import ThroughputMonitor
    from trainer_hooks.callbacks.writing.prediction_writer import (
        BasePredictionWriter,
        WriteInterval,
    )

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

_SECOND_NAMES = {
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
"""What another system calls a callback that is here under another name, and the system."""

__getattr__ = loader_of(
    __name__,
    {
        "ActivationMonitor": "watching.activation_monitor",
        "BackboneFinetuning": "finetuning.backbone_finetuning",
        "BaseFinetuning": "finetuning.base_finetuning",
        "BasePredictionWriter": "writing.prediction_writer",
        "BatchSizeFinder": "tuning.batch_size_finder",
        "Checkpoint": "saving.checkpoint",
        "ConvertSyncBatchNormCallback": "placing.convert_sync_batch_norm",
        "DeviceStatsMonitor": "watching.device_stats_monitor",
        "EMAWeightAveraging": "averaging.ema_weight_averaging",
        "EarlyStopping": "stopping.early_stopping",
        "ExportForInferenceCallback": "exporting.export_for_inference_callback",
        "FreeOutputs": "guarding.free_outputs",
        "GarbageCollection": "guarding.garbage_collection",
        "Generate": "reporting.generate",
        "GradientAccumulationScheduler": "tuning.accumulation",
        "GradientNormMonitor": "watching.gradient_norm_monitor",
        "ImageVisualizer": "reporting.image_visualizer",
        "LambdaCallback": "lambda_callback",
        "LearningRateFinder": "tuning.lr_finder",
        "LearningRateMonitor": "watching.lr_monitor",
        "LimitBatchesCallback": "limiting.limit_batches",
        "LimitEvalStepsCallback": "limiting.limit_eval_steps",
        "LoadCheckpoint": "saving.load_checkpoint",
        "MLPerfCallback": "reporting.mlperf_callback",
        "MemoryMonitor": "watching.memory_monitor",
        "MemorySnapshot": "watching.memory_snapshot",
        "ModelCheckpoint": "saving.model_checkpoint",
        "ModelEmaCallback": "averaging.model_ema",
        "ModelPruning": "compression.model_pruning",
        "ModelSummary": "summary.model_summary",
        "MoveModulesToDeviceCallback": "placing.move_modules_to_device",
        "NaNGuard": "guarding.nan_guard",
        "Notify": "reporting.notify",
        "OOMObserver": "watching.oom_observer",
        "OnExceptionCheckpoint": "saving.on_exception_checkpoint",
        "PrintMetricsCallback": "progress.print_metrics",
        "PrintProgressCallback": "progress.print_progress",
        "Profiler": "watching.profiler",
        "ProgressBar": "progress.progress_bar",
        "ProgressBarBase": "progress.progress_bar",
        "QuantizationAwareTraining": "compression.quantization_aware_training",
        "RichModelSummary": "summary.rich_model_summary",
        "RichProgressBar": "progress.rich_progress",
        "RichProgressBarTheme": "progress.rich_progress",
        "RunManifest": "reporting.run_manifest",
        "RuntimeEstimator": "watching.runtime_estimator",
        "SampleInspector": "reporting.sample_inspector",
        "SlowStepDetector": "watching.slow_step_detector",
        "SpikeDetection": "guarding.spike_detection",
        "StepBasedEvaluationCallback": "limiting.step_based_evaluation",
        "StochasticWeightAveraging": "averaging.stochastic_weight_averaging",
        "StopTraining": "stopping.stop_training",
        "StopTrainingError": "stopping.stop_training",
        "SystemMetricsMonitor": "watching.system_metrics_monitor",
        "TQDMProgressBar": "progress.tqdm_progress",
        "Throughput": "watching.throughput",
        "ThroughputMonitor": "watching.throughput_monitor",
        "Timer": "stopping.timer",
        "TrainingSpikeException": "guarding.spike_detection",
        "WSDCheckpointCallback": "saving.wsd_checkpoint",
        "WeightAveraging": "averaging.weight_averaging",
        "WriteInterval": "writing.prediction_writer",
        "export_for_inference": "exporting.export",
        "measure_flops": "watching.peak_flops",
    },
    moved={
        name: f"trainer_hooks.compat.{system}.callbacks" for name, system in _SECOND_NAMES.items()
    },
)


def __dir__() -> list[str]:
    return __all__
