"""`LambdaCallback`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import LambdaCallback

__all__ = ["LambdaCallback"]
