"""Built-in callbacks."""

from __future__ import annotations

from trainer_hooks.callbacks.lambda_callback import LambdaCallback
from trainer_hooks.callbacks.model_summary import ModelSummary
from trainer_hooks.callbacks.progress_bar import ProgressBar
from trainer_hooks.callbacks.rich_progress import RichProgressBar, RichProgressBarTheme
from trainer_hooks.callbacks.tqdm_progress import TQDMProgressBar

__all__ = [
    "LambdaCallback",
    "ModelSummary",
    "ProgressBar",
    "RichProgressBar",
    "RichProgressBarTheme",
    "TQDMProgressBar",
]
