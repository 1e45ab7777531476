"""What a logger of one's own is made of, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.compat.lightning.rank_zero_experiment import rank_zero_experiment
from trainer_hooks.compat.refusing import refusing
from trainer_hooks.loggers import DummyLogger, Logger

__all__ = ["DummyLogger", "Logger", "rank_zero_experiment"]

__getattr__ = refusing(
    __name__,
    {
        "merge_dicts": "merge them where they are logged",
    },
)
