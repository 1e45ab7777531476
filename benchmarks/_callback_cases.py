"""Which callbacks `callbacks.py` measures, each as one would use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """One callback in one use.

    Attributes:
        made: the expression that makes it; it sees all callbacks by name, `torch`,
            and `folder`, a path.
        theirs: the same in Lightning; None where it has no such callback.
        options: options of the trainer that it needs; its baseline has them too.
        validates: whether there is a validation of one batch after each epoch, in both.
        decay_steps: the steps at which the module's schedule says that its decays end; without any
            there is no schedule. Its baseline has it too.
    """

    made: str
    theirs: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    validates: bool = False
    decay_steps: tuple[int, ...] = ()


def _both(made: str, **options: Any) -> Case:
    """Return a case that is written alike in both."""
    return Case(made, made, options)


CASES = {
    "DeviceStatsMonitor": _both("DeviceStatsMonitor()"),
    "EMAWeightAveraging": _both("EMAWeightAveraging()"),
    "GarbageCollection": Case("GarbageCollection()"),
    "GradientAccumulationScheduler": _both("GradientAccumulationScheduler({0: 1})"),
    "GradientNormMonitor": Case("GradientNormMonitor()"),
    "ModelEmaCallback": Case(
        "ModelEmaCallback(evaluate_during_training=False, save_path=folder / 'ema.pt')"
    ),
    "ModelPruning": _both("ModelPruning('l1_unstructured', amount=0.1)"),
    "NaNGuard": Case("NaNGuard()"),
    "Notify": Case("Notify('true')"),
    "OnExceptionCheckpoint": _both("OnExceptionCheckpoint(folder / 'failed')"),
    "Profiler": Case("Profiler(activities='cpu', dirpath=folder)"),
    "SlowStepDetector": Case("SlowStepDetector()"),
    "SpikeDetection": Case("SpikeDetection(rtol=1e9)"),
    "StochasticWeightAveraging": _both("StochasticWeightAveraging(swa_lrs=0.01)"),
    "ThroughputMonitor": _both("ThroughputMonitor(lambda batch: len(batch[0]), window_size=10)"),
    "WeightAveraging": _both("WeightAveraging()"),
    "ConvertSyncBatchNormCallback": Case("ConvertSyncBatchNormCallback()"),
    "EarlyStoppingCallback": Case("EarlyStoppingCallback(1000, 0.0, 'loss_epoch')"),
    "LimitBatchesCallback": Case("LimitBatchesCallback(10**9)"),
    "LoadCheckpoint": Case(
        "LoadCheckpoint(str(folder / 'none.ckpt'), True, event='predict_start')"
    ),
    "LimitEvalStepsCallback": Case("LimitEvalStepsCallback(10**9)"),
    "PrintMetricsCallback": Case("PrintMetricsCallback()"),
    "MoveModulesToDeviceCallback": Case("MoveModulesToDeviceCallback()"),
    "PrintProgressCallback": Case("PrintProgressCallback()"),
    "ProgressBarCallback": Case("ProgressBarCallback()", options={"enable_progress_bar": True}),
    "SaveBestModelCallback": Case("SaveBestModelCallback(folder / 'best.pt', 'loss_epoch')"),
    "SaveTrainingStateCallback": Case(
        "SaveTrainingStateCallback(folder / 'states', save_every_n_epochs=1, max_checkpoints=1)"
    ),
    "StepBasedEvaluationCallback": Case("StepBasedEvaluationCallback(10**9)"),
    "TerminateOnNaNCallback": Case("TerminateOnNaNCallback()"),
    "ActivationMonitor": Case("ActivationMonitor('25ba', only_log_wandb=False)"),
    "CheckpointSaver": Case("CheckpointSaver(folder / 'composer', overwrite=True)"),
    "EarlyStopper": Case("EarlyStopper('loss_epoch', 'train', patience=1000)"),
    "EarlyStopping": _both(
        "EarlyStopping('loss_epoch', patience=1000, check_on_train_epoch_end=True)"
    ),
    "ExportForInferenceCallback": Case(
        "ExportForInferenceCallback('torch.export', folder / 'model.pt2')"
    ),
    "FreeOutputs": Case("FreeOutputs()"),
    "GradMonitor": Case("GradMonitor()"),
    "ImageVisualizer": Case("ImageVisualizer(input_key=lambda batch: batch[0][:, None])"),
    "LRMonitor": Case("LRMonitor()"),
    "LambdaCallback": _both("LambdaCallback(on_train_batch_end=lambda *a: None)"),
    "LearningRateMonitor": _both("LearningRateMonitor(logging_interval='step')"),
    "MemoryMonitor": Case("MemoryMonitor()"),
    "MemorySnapshot": Case("MemorySnapshot()"),
    "MLPerfCallback": Case(
        "MLPerfCallback(folder, 0, metric_name='val_loss', target=1e9)", validates=True
    ),
    "ModelCheckpoint": _both("ModelCheckpoint(folder / 'kept', save_on_train_epoch_end=True)"),
    "ModelSummary": _both("ModelSummary()", enable_model_summary=True),
    "NaNMonitor": Case("NaNMonitor()"),
    "OOMObserver": Case("OOMObserver()"),
    "OptimizerMonitor": Case("OptimizerMonitor()"),
    "QuantizationAwareTraining": Case("QuantizationAwareTraining()"),
    "RichModelSummary": _both("RichModelSummary()", enable_model_summary=True),
    "RichProgressBar": _both("RichProgressBar()", enable_progress_bar=True),
    "RunManifest": Case("RunManifest(folder / 'notes')"),
    "RuntimeEstimator": Case("RuntimeEstimator()"),
    "SampleInspector": Case("SampleInspector()"),
    "SpeedMonitor": Case("SpeedMonitor()"),
    "SystemMetricsMonitor": Case("SystemMetricsMonitor()"),
    "TQDMProgressBar": _both("TQDMProgressBar()", enable_progress_bar=True),
    "ThresholdStopper": Case("ThresholdStopper('loss_epoch', 'train', -1e9)"),
    "Timer": _both("Timer('01:00:00:00')"),
    "Generate": Case("Generate(['Hello', 'Good day'], '100ba')"),
    "WSDCheckpointCallback": Case(
        "WSDCheckpointCallback(folder / 'decays')", decay_steps=(2000, 4000)
    ),
}
