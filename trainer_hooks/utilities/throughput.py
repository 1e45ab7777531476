"""`measure_flops`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks.watching.peak_flops import measure_flops

__all__ = ["measure_flops"]
