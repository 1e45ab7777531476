"""The callbacks of pytorch-accelerated; what is not its own is that of trainer_hooks.callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.callbacks import (
        ConvertSyncBatchNormCallback,
        LimitBatchesCallback,
        LimitEvalStepsCallback,
        ModelEmaCallback,
        MoveModulesToDeviceCallback,
        PrintMetricsCallback,
        PrintProgressCallback,
        StepBasedEvaluationCallback,
        StopTrainingError,
        WSDCheckpointCallback,
    )
    from trainer_hooks.compat.accelerated.callback_handler import CallbackHandler
    from trainer_hooks.compat.accelerated.callbacks.early_stopping_callback import (
        EarlyStoppingCallback,
    )
    from trainer_hooks.compat.accelerated.callbacks.log_metrics import LogMetricsCallback
    from trainer_hooks.compat.accelerated.callbacks.progress_bar_callback import ProgressBarCallback
    from trainer_hooks.compat.accelerated.callbacks.save_best_model import SaveBestModelCallback
    from trainer_hooks.compat.accelerated.callbacks.save_training_state import (
        SaveTrainingStateCallback,
    )
    from trainer_hooks.compat.accelerated.callbacks.terminate_on_nan import TerminateOnNaNCallback
    from trainer_hooks.compat.accelerated.trainer_callback import TrainerCallback

__all__ = [
    "CallbackHandler",
    "ConvertSyncBatchNormCallback",
    "EarlyStoppingCallback",
    "LimitBatchesCallback",
    "LimitEvalStepsCallback",
    "LogMetricsCallback",
    "ModelEmaCallback",
    "MoveModulesToDeviceCallback",
    "PrintMetricsCallback",
    "PrintProgressCallback",
    "ProgressBarCallback",
    "SaveBestModelCallback",
    "SaveTrainingStateCallback",
    "StepBasedEvaluationCallback",
    "StopTrainingError",
    "TerminateOnNaNCallback",
    "TrainerCallback",
    "WSDCheckpointCallback",
]

__getattr__ = loader_of(
    __name__,
    {
        "CallbackHandler": ":trainer_hooks.compat.accelerated.callback_handler",
        "ConvertSyncBatchNormCallback": ":trainer_hooks.callbacks",
        "EarlyStoppingCallback": "early_stopping_callback",
        "LimitBatchesCallback": ":trainer_hooks.callbacks",
        "LimitEvalStepsCallback": ":trainer_hooks.callbacks",
        "LogMetricsCallback": "log_metrics",
        "ModelEmaCallback": ":trainer_hooks.callbacks",
        "MoveModulesToDeviceCallback": ":trainer_hooks.callbacks",
        "PrintMetricsCallback": ":trainer_hooks.callbacks",
        "PrintProgressCallback": ":trainer_hooks.callbacks",
        "ProgressBarCallback": "progress_bar_callback",
        "SaveBestModelCallback": "save_best_model",
        "SaveTrainingStateCallback": "save_training_state",
        "StepBasedEvaluationCallback": ":trainer_hooks.callbacks",
        "StopTrainingError": ":trainer_hooks.callbacks",
        "TerminateOnNaNCallback": "terminate_on_nan",
        "TrainerCallback": ":trainer_hooks.compat.accelerated.trainer_callback",
        "WSDCheckpointCallback": ":trainer_hooks.callbacks",
    },
)


def __dir__() -> list[str]:
    return __all__
