"""`StochasticWeightAveraging`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import StochasticWeightAveraging

__all__ = ["StochasticWeightAveraging"]
