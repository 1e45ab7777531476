"""The statistics of BatchNorm, computed anew for weights that never saw a batch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

__all__ = ["has_statistics", "restarted_statistics"]


def has_statistics(module: nn.Module) -> bool:
    """Return whether a forward would change statistics of BatchNorm."""
    return any(True for _ in _moving(module))


@contextmanager
def restarted_statistics(module: nn.Module) -> Iterator[None]:
    """Let the forwards inside compute the statistics of BatchNorm anew, as means over them all.

    Layers that are frozen, in eval mode or without statistics, keep what they have.
    """
    layers = list(_moving(module))
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the mean over all batches
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


def _moving(module: nn.Module) -> Iterator[_BatchNorm]:
    for part in module.modules():
        if isinstance(part, _BatchNorm) and part.training and part.track_running_stats:
            yield part
