"""The callbacks that come with trainer_hooks."""

from trainer_hooks.callbacks.checkpoint import Checkpoint
from trainer_hooks.callbacks.checkpoint_saver import CheckpointSaver
from trainer_hooks.callbacks.early_stopping import EarlyStopping
from trainer_hooks.callbacks.lambda_callback import LambdaCallback
from trainer_hooks.callbacks.lr_monitor import LearningRateMonitor
from trainer_hooks.callbacks.model_checkpoint import ModelCheckpoint
from trainer_hooks.callbacks.model_summary import ModelSummary
from trainer_hooks.callbacks.progress_bar import ProgressBar
from trainer_hooks.callbacks.rich_progress import RichProgressBar, RichProgressBarTheme
from trainer_hooks.callbacks.timer import Timer
from trainer_hooks.callbacks.tqdm_progress import TQDMProgressBar

__all__ = [
    "Checkpoint",
    "CheckpointSaver",
    "EarlyStopping",
    "LambdaCallback",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelSummary",
    "ProgressBar",
    "RichProgressBar",
    "RichProgressBarTheme",
    "TQDMProgressBar",
    "Timer",
]
