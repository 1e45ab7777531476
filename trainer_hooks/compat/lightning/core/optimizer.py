"""What `self.optimizers()` returns, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing
from trainer_hooks.module import ManualOptimizer as LightningOptimizer

__all__ = ["LightningOptimizer"]

__getattr__ = refusing(
    __name__,
    {
        "do_nothing_closure": "call step() without a closure",
    },
)
