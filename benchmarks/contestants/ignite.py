"""PyTorch-Ignite: an Engine around the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _workload import TimedBatches, make_model, make_optimizer
from ignite.engine import Engine
from torch.nn import functional as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

__all__ = ["bare"]


def bare(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train without any handler."""
    model = make_model()
    optimizer = make_optimizer(model)

    def update(_: Engine, batch: Any) -> torch.Tensor:
        x, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    Engine(update).run(batches, max_epochs=epochs)
    return model
