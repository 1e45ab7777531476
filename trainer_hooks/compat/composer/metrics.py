"""The metric classes that Composer adds to those of torchmetrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torchmetrics import Metric

from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CrossEntropy", "LossMetric"]

__getattr__ = package_getattr(__name__)


class LossMetric(Metric):
    """A loss function as a metric: its mean over batches.

    Args:
        loss_function: a function of outputs and targets.
        dist_sync_on_step: whether each `forward` synchronises the processes.
    """

    # torchmetrics then runs update() once for each forward, and not twice
    full_state_update = False
    sum_loss: Tensor
    total_batches: Tensor

    def __init__(self, loss_function: Any, dist_sync_on_step: bool = False) -> None:
        super().__init__(dist_sync_on_step=dist_sync_on_step)
        self.loss_function = loss_function
        self.add_state("sum_loss", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("total_batches", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, targets: Tensor) -> None:
        """Add the loss of a batch."""
        self.sum_loss += self.loss_function(preds, targets)
        # over batches and not samples: a smaller last batch weighs as much, as in Composer
        self.total_batches += 1

    def compute(self) -> Tensor:
        """Return the mean of the batches' losses."""
        return self.sum_loss / self.total_batches


class CrossEntropy(LossMetric):
    """The mean of the cross entropy over batches.

    Args:
        ignore_index: the class of targets that are left out.
        dist_sync_on_step: whether each `forward` synchronises the processes.
    """

    def __init__(self, ignore_index: int = -100, dist_sync_on_step: bool = False) -> None:
        def loss(preds: Tensor, targets: Tensor) -> Tensor:
            return functional.cross_entropy(preds, targets, ignore_index=ignore_index)

        super().__init__(loss, dist_sync_on_step)
