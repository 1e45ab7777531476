"""pytorch-accelerated, with no callbacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from _workload import BATCH_SIZE, TimedBatches, make_model, make_optimizer
from pytorch_accelerated import Trainer
from torch.nn import functional as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

__all__ = ["bare"]


class _Trainer(Trainer):  # type: ignore[misc]
    def create_train_dataloader(self, *args: Any, **kwargs: Any) -> TimedBatches:
        return self.train_dataset


def bare(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train with its default step, which takes the loss to the host each time."""
    model = make_model()
    # It sets an attribute on the sampler of whatever loader it is given.
    batches.batch_sampler = SimpleNamespace()  # type: ignore[attr-defined]
    trainer = _Trainer(model, F.cross_entropy, make_optimizer(model), callbacks=())
    trainer.train(batches, num_epochs=epochs, per_device_batch_size=BATCH_SIZE)
    return model
