"""Random numbers put back, where Lightning has it."""

from __future__ import annotations

from trainer_hooks import seed_everything
from trainer_hooks.runtime import isolated as isolate_rng

__all__ = ["isolate_rng", "seed_everything"]
