"""The history of logged values, and a mean of losses, under pytorch-accelerated's names."""

from __future__ import annotations

from trainer_hooks.metrics.history import History

__all__ = ["InMemoryRunHistory", "LossTracker", "RunHistory"]

RunHistory = InMemoryRunHistory = History


class LossTracker:
    """The mean of losses, weighted by the sizes of their batches.

    Attributes:
        loss_value: the last loss.
        total_loss: the sum of losses, each times its batch's size.
        running_count: the number of samples.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.loss_value: float = 0
        self.total_loss: float = 0
        self.running_count = 0

    def update(self, loss_batch_value: float, batch_size: int = 1) -> None:
        """Take the mean loss of a batch into the mean.

        Args:
            loss_batch_value: the loss.
            batch_size: the samples of the batch.
        """
        self.loss_value = loss_batch_value
        self.total_loss += loss_batch_value * batch_size
        self.running_count += batch_size

    @property
    def average(self) -> float:
        """The mean; 0 before the first batch."""
        return self.total_loss / self.running_count if self.running_count else 0
