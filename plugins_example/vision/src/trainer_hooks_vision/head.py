"""Head: the classifier on top of representations, with random numbers of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer_hooks.runtime.rng import isolated, reseed

__all__ = ["Head"]


class Head(nn.Module):
    """Tell the classes of representations, by a linear layer or by an MLP with a hidden one.

    Args:
        z_dim: numbers of a representation.
        hidden_dim: width of the hidden layer, or None.
        num_classes: how many classes.
        drop_p: share of the numbers that is left out in training, before each layer.
        seed: of the weights and of what is left out.

    Attributes:
        generator: what is left out is drawn from it; the global random numbers are left alone.
    """

    def __init__(
        self, z_dim: int, hidden_dim: int | None, num_classes: int, drop_p: float, seed: int
    ) -> None:
        super().__init__()
        self.drop_p = drop_p
        self.generator = torch.Generator().manual_seed(seed)
        with isolated():
            reseed(seed)
            if hidden_dim is None:
                self.layers = nn.ModuleList([nn.Linear(z_dim, num_classes)])
            else:
                hidden = nn.Sequential(
                    nn.Linear(z_dim, hidden_dim), nn.LayerNorm(hidden_dim), nn.ReLU()
                )
                self.layers = nn.ModuleList([hidden, nn.Linear(hidden_dim, num_classes)])

    def forward(self, codes: Tensor) -> Tensor:
        """Return scores of shape (samples, classes)."""
        for layer in self.layers:
            codes = layer(self._drop(codes))
        return codes

    def _drop(self, codes: Tensor) -> Tensor:
        if not self.training or not self.drop_p:
            return codes
        kept = torch.rand(codes.shape, generator=self.generator) >= self.drop_p
        return codes * kept.to(codes.device, codes.dtype) / (1 - self.drop_p)
