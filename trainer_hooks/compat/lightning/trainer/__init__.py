"""The trainer, where Lightning has it."""

from __future__ import annotations

from trainer_hooks import seed_everything
from trainer_hooks.compat.lightning.trainer.trainer import Trainer

__all__ = ["Trainer", "seed_everything"]
