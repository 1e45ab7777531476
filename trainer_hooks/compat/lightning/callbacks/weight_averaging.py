"""`WeightAveraging` and `EMAWeightAveraging`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import EMAWeightAveraging, WeightAveraging

__all__ = ["EMAWeightAveraging", "WeightAveraging"]
