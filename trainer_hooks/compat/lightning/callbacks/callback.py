"""`Callback`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.compat.lightning.callback import Callback

__all__ = ["Callback"]
