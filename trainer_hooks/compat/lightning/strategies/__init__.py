"""Strategies, where Lightning has them."""

from __future__ import annotations

from trainer_hooks import DDPStrategy, FSDPStrategy
from trainer_hooks.compat.refusing import refusing

__all__ = ["DDPStrategy", "FSDPStrategy"]

__getattr__ = refusing(
    __name__,
    {
        "DeepSpeedStrategy": "take FSDPStrategy, which shards all that DeepSpeed does",
        "ModelParallelStrategy": "take FSDPStrategy(tensor_parallel_size=...)",
        "ParallelStrategy": "a strategy here is its options: take DDPStrategy or FSDPStrategy",
        "SingleDeviceStrategy": "pass Trainer(strategy='single_device')",
        "Strategy": "a strategy here is its options: take DDPStrategy or FSDPStrategy",
    },
)
