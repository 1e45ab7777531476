"""`BasePredictionWriter`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import BasePredictionWriter, WriteInterval

__all__ = ["BasePredictionWriter", "WriteInterval"]
