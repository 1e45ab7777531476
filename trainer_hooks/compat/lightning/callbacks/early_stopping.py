"""`EarlyStopping`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.callbacks.stopping.early_stopping import EarlyStoppingReason

__all__ = ["EarlyStopping", "EarlyStoppingReason"]
