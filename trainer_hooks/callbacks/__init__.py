"""Built-in callbacks."""

from __future__ import annotations

from trainer_hooks.callbacks.lambda_callback import LambdaCallback
from trainer_hooks.callbacks.model_summary import ModelSummary

__all__ = [
    "LambdaCallback",
    "ModelSummary",
]
