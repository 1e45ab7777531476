"""What a ComposerModel's loss comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer_hooks.errors import ModuleError

__all__ = ["losses_of", "mean_of"]


def losses_of(loss: Any, owner: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Return what is learned from, and the losses with a name.

    Args:
        loss: what the model returned: a tensor, several, or a dict of them.
        owner: the model's class, for messages.

    Raises:
        ModuleError: it is no loss.
    """
    named: dict[str, Any] = dict(loss) if isinstance(loss, dict) else {}
    several = list(named.values()) or (list(loss) if isinstance(loss, Sequence) else [])
    parts = several or [loss]
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        raise ModuleError(
            f"{owner}.loss returned {loss!r} of type {type(loss).__qualname__}: it must return a "
            "tensor, several, or a dict of them."
        )
    if "total" in named:
        return named["total"], named
    if not named and len(parts) > 1:
        named = {f"loss{index}": part for index, part in enumerate(parts)}
    total = mean_of(parts[0])
    for part in parts[1:]:
        total = total + mean_of(part)
    return total, named


def mean_of(loss: Tensor) -> Tensor:
    """Return the mean of a loss that has a value for each sample."""
    return loss.mean() if loss.ndim else loss
