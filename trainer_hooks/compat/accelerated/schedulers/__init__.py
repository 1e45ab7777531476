"""The schedulers of pytorch-accelerated, which step after each step of the optimizer."""

from __future__ import annotations

from trainer_hooks.compat.accelerated.schedulers.cosine_scheduler import CosineLrScheduler
from trainer_hooks.compat.accelerated.schedulers.scheduler_base import (
    SchedulerBase,
    StatefulSchedulerBase,
)
from trainer_hooks.compat.accelerated.schedulers.wsd_scheduler import WSDLrScheduler

__all__ = ["CosineLrScheduler", "SchedulerBase", "StatefulSchedulerBase", "WSDLrScheduler"]
