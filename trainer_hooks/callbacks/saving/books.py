"""Books: which checkpoints a saver knows of, and which of them are the best."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.callbacks.monitoring import is_better

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Books"]


@dataclass(slots=True)
class Books:
    """The book-keeping of one saver. All paths are absolute, an empty one means "none yet".

    Attributes:
        mode: `"min"` or `"max"`: which scores are better.
        kth_value: the score of the worst of the best, once there are as many as are kept; until
            then, what every number beats.
        best_model_path: the best checkpoint; without a monitor the newest.
        best_model_score: its score.
        best_k_models: the best checkpoints and their scores. NaN ranks below every number.
        kth_best_model_path: the worst of them, once there are as many as are kept.
        last_model_path: the newest checkpoint that was saved as the last one.
        current_score: the score that was looked at last, saved or not.
        saved_step: the optimizer steps done at the last save.
        considered_at: the batches done when it was last decided what to save.
    """

    mode: str
    kth_value: Tensor
    best_model_path: str = ""
    best_model_score: Tensor | None = None
    best_k_models: dict[str, Tensor] = field(default_factory=dict)
    kth_best_model_path: str = ""
    last_model_path: str = ""
    current_score: Tensor | None = None
    saved_step: int = 0
    considered_at: int = 0

    @classmethod
    def opened(cls, mode: str) -> Books:
        """Return books without an entry."""
        return cls(mode, kth_value=torch.tensor(math.inf if mode == "min" else -math.inf))

    def copy(self) -> Books:
        """Return books that can be changed while these stay."""
        copied = {item.name: getattr(self, item.name) for item in fields(self)}
        return Books(**{**copied, "best_k_models": dict(self.best_k_models)})

    @property
    def ranked(self) -> list[str]:
        """The best checkpoints, the best first; of two that are equal the older one."""
        sign = 1.0 if self.mode == "min" else -1.0

        def rank(path: str) -> tuple[bool, float]:
            score = self.best_k_models[path].item()
            return (True, 0.0) if math.isnan(score) else (False, sign * score)

        return sorted(self.best_k_models, key=rank)

    def admits(self, score: Tensor, k: int) -> bool:
        """Return whether `score` is among the best `k`; -1 keeps all."""
        if k == -1 or len(self.best_k_models) < k:
            return True
        worst = self.best_k_models[self.ranked[k - 1]]
        return is_better(score.item(), worst.item(), self.mode)

    def outranked(self, k: int) -> list[str]:
        """Return the checkpoints that one more among the best `k` would drive out."""
        return [] if k == -1 else self.ranked[k - 1 :]

    def add(self, path: str, score: Tensor, k: int) -> None:
        """Enter a checkpoint that was admitted, in place of those that it outranks."""
        for outranked in self.outranked(k):
            del self.best_k_models[outranked]
        self.best_k_models[path] = score
        ranked = self.ranked
        if k in (-1, len(ranked)):
            self.kth_best_model_path = ranked[-1]
            self.kth_value = self.best_k_models[ranked[-1]]
        best = self.best_k_models[ranked[0]]
        if not math.isnan(best.item()):  # a model that diverged is nobody's best
            self.best_model_path = ranked[0]
            self.best_model_score = best

    def names(self, path: str) -> bool:
        """Return whether the books still name `path`."""
        return path in self.best_k_models or path in (self.best_model_path, self.last_model_path)

    def state_dict(self) -> dict[str, Any]:
        """Return the books as plain data and tensors."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        del state["mode"]
        return {**state, "best_k_models": dict(self.best_k_models)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the books back; what the state does not know stays as it is."""
        for item in fields(self):
            if item.name in state_dict and item.name != "mode":
                setattr(self, item.name, state_dict[item.name])
        self.best_k_models = dict(self.best_k_models)
