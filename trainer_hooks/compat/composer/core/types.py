"""Types that annotations name."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from trainer_hooks.compat.composer.core.words import Words

__all__ = ["Batch", "Dataset", "TrainerMode"]

Batch = Any


class TrainerMode(Words):
    """What the trainer is doing."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "predict"
