from trainer_hooks.adapters.pytorch_accelerated.callback_handler import (
    CallbackHandler as CallbackHandler,
)
from trainer_hooks.compat.accelerated.trainer_callback import TrainerCallback as TrainerCallback
from trainer_hooks.errors import StopTrainingError as StopTrainingError

from .batch_limits import LimitBatchesCallback as LimitBatchesCallback
from .batch_limits import LimitEvalStepsCallback as LimitEvalStepsCallback
from .batch_limits import StepBasedEvaluationCallback as StepBasedEvaluationCallback
from .built_in import ConvertSyncBatchNormCallback as ConvertSyncBatchNormCallback
from .built_in import LogMetricsCallback as LogMetricsCallback
from .built_in import MoveModulesToDeviceCallback as MoveModulesToDeviceCallback
from .built_in import PrintMetricsCallback as PrintMetricsCallback
from .built_in import PrintProgressCallback as PrintProgressCallback
from .built_in import ProgressBarCallback as ProgressBarCallback
from .built_in import WSDCheckpointCallback as WSDCheckpointCallback
from .built_in import get_default_callbacks as get_default_callbacks
from .model_ema import ModelEmaCallback as ModelEmaCallback
from .savers import SaveBestModelCallback as SaveBestModelCallback
from .savers import SaveTrainingStateCallback as SaveTrainingStateCallback
from .stopping import EarlyStoppingCallback as EarlyStoppingCallback
from .stopping import TerminateOnNaNCallback as TerminateOnNaNCallback
