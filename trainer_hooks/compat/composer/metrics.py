"""Metric objects that Composer has beside torchmetrics' own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torchmetrics import Metric

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CrossEntropy", "LossMetric"]


class LossMetric(Metric):
    """Turn a loss function into a metric: the mean over batches.

    Args:
        loss_function: a function of outputs and targets.
    """

    full_state_update = False
    sum_loss: Tensor
    total_batches: Tensor

    def __init__(self, loss_function: Any, dist_sync_on_step: bool = False) -> None:
        super().__init__(dist_sync_on_step=dist_sync_on_step)
        self.loss_function = loss_function
        self.add_state("sum_loss", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("total_batches", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, targets: Tensor) -> None:
        """Take a batch in."""
        self.sum_loss += self.loss_function(preds, targets)
        self.total_batches += 1

    def compute(self) -> Tensor:
        """Return the mean."""
        return self.sum_loss / self.total_batches


class CrossEntropy(LossMetric):
    """The cross entropy, as the mean over batches.

    Args:
        ignore_index: a class that is left out.
    """

    def __init__(self, ignore_index: int = -100, dist_sync_on_step: bool = False) -> None:
        def loss(preds: Tensor, targets: Tensor) -> Tensor:
            return functional.cross_entropy(preds, targets, ignore_index=ignore_index)

        super().__init__(loss, dist_sync_on_step)
