"""Norms of gradients, computed where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

__all__ = ["gradient_norms", "norm_of", "norm_of_norms"]


def norm_of(gradient: Tensor, order: float = 2.0) -> Tensor:
    """Return the norm of a tensor, in a type in which squares do not overflow at once."""
    entries = gradient.coalesce().values() if gradient.is_sparse else gradient
    wide = torch.promote_types(entries.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(entries.detach(), order, dtype=wide)
    return norm


def norm_of_norms(norms: Sequence[Tensor], order: float = 2.0) -> Tensor:
    """Return the norm of several tensors from their norms; they may be on several devices."""
    if len(norms) == 1:
        return norms[0]
    device = norms[0].device
    together: Tensor = torch.linalg.vector_norm(
        torch.stack([norm.to(device) for norm in norms]), order
    )
    return together


def gradient_norms(module: nn.Module) -> dict[str, Tensor]:
    """Return the norm of each parameter's gradient, by the parameter's name."""
    return {
        name: norm_of(parameter.grad)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
