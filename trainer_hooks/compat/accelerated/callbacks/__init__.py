"""The callbacks of pytorch-accelerated, each a `TrainerCallback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.pytorch_accelerated.callback_handler import CallbackHandler
    from trainer_hooks.compat.accelerated.callbacks.batch_limits import (
        LimitBatchesCallback,
        LimitEvalStepsCallback,
        StepBasedEvaluationCallback,
    )
    from trainer_hooks.compat.accelerated.callbacks.built_in import (
        ConvertSyncBatchNormCallback,
        MoveModulesToDeviceCallback,
        PrintMetricsCallback,
        PrintProgressCallback,
        WSDCheckpointCallback,
    )
    from trainer_hooks.compat.accelerated.callbacks.console import (
        LogMetricsCallback,
        ProgressBarCallback,
    )
    from trainer_hooks.compat.accelerated.callbacks.model_ema import ModelEmaCallback
    from trainer_hooks.compat.accelerated.callbacks.savers import (
        SaveBestModelCallback,
        SaveTrainingStateCallback,
    )
    from trainer_hooks.compat.accelerated.callbacks.stopping import (
        EarlyStoppingCallback,
        TerminateOnNaNCallback,
    )
    from trainer_hooks.compat.accelerated.trainer_callback import TrainerCallback
    from trainer_hooks.errors import StopTrainingError

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
        # first, so that the rows below replace it for their names
        **dict.fromkeys(__all__, "built_in"),
        "CallbackHandler": ":trainer_hooks.adapters.pytorch_accelerated.callback_handler",
        "EarlyStoppingCallback TerminateOnNaNCallback": "stopping",
        "LimitBatchesCallback LimitEvalStepsCallback StepBasedEvaluationCallback": "batch_limits",
        "LogMetricsCallback ProgressBarCallback": "console",
        "ModelEmaCallback": "model_ema",
        "StopTrainingError": ":trainer_hooks.errors",
        "SaveBestModelCallback SaveTrainingStateCallback": "savers",
        "TrainerCallback": ":trainer_hooks.compat.accelerated.trainer_callback",
    },
)


def __dir__() -> list[str]:
    return __all__
