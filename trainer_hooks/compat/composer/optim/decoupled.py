"""SGD and AdamW whose weight decay does not depend on the learning rate that is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import SGD, AdamW

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

__all__ = ["DecoupledAdamW", "DecoupledSGDW"]


class DecoupledSGDW(SGD):
    """SGD that multiplies the weights by `1 - weight_decay * lr / first lr` at each step.

    Args:
        params: the parameters, or groups of them.
        lr: the learning rate.
        momentum: as of SGD.
        weight_decay: the part of a weight that a step takes away.
        dampening: as of SGD.
        nesterov: likewise.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        dampening: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr, momentum, dampening, 0.0, nesterov)
        _keep(self, weight_decay)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step; the loss of a closure is returned."""
        return _stepped(self, super().step, closure)


class DecoupledAdamW(AdamW):
    """AdamW that multiplies the weights by `1 - weight_decay * lr / first lr` at each step.

    Args:
        params: the parameters, or groups of them.
        lr: the learning rate.
        betas: as of AdamW.
        eps: likewise.
        weight_decay: the part of a weight that a step takes away.
        amsgrad: as of AdamW.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 1e-5,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, 0.0, amsgrad)
        _keep(self, weight_decay)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step; the loss of a closure is returned."""
        return _stepped(self, super().step, closure)


def _keep(optimizer: Optimizer, decay: float) -> None:
    """Keep the decay of each group where torch's own does not find it."""
    for group in optimizer.param_groups:
        group["decoupled_weight_decay"] = group["weight_decay"] or decay
        group["weight_decay"] = 0.0
        group["initial_lr"] = group["lr"]


def _stepped(
    optimizer: Optimizer, step: Callable[[], Any], closure: Callable[[], float] | None
) -> Any:
    """Compute the gradients if there is a closure, decay the weights, and step."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    with torch.no_grad():
        for group in optimizer.param_groups:
            first = group["initial_lr"]
            factor = group["decoupled_weight_decay"] * (group["lr"] / first if first else 1.0)
            for parameter in group["params"] if factor else ():
                if parameter.grad is not None:
                    parameter.mul_(1 - factor)
    step()
    return loss
