"""The types that annotations in Composer's programs name."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from trainer_hooks.compat.composer.core.event import StringEnum
from trainer_hooks.compat.composer.modules import package_getattr

__all__ = ["Batch", "Dataset", "Serializable", "TrainerMode"]

__getattr__ = package_getattr(__name__)

Batch = Any


class TrainerMode(StringEnum):
    """The mode of a trainer: training, evaluation or prediction."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "predict"


class Serializable:
    """A base class with an empty state to save and load."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
