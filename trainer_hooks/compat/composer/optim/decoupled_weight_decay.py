"""SGD and AdamW with a weight decay that is independent of the initial learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import SGD, AdamW

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

__all__ = ["DecoupledAdamW", "DecoupledSGDW"]


class DecoupledSGDW(SGD):
    """SGD that multiplies the weights by `1 - weight_decay * lr / initial lr` at each step.

    Args:
        params: the parameters, or groups of them.
        lr: the learning rate.
        momentum: the momentum factor of SGD.
        weight_decay: the fraction of a weight that a step removes at the initial learning rate.
        dampening: the dampening of the momentum.
        nesterov: whether the momentum is Nesterov's.
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
        # 0.0 for torch's own decay, which would be added to the gradient
        super().__init__(params, lr, momentum, dampening, 0.0, nesterov)
        _move_weight_decay(self, weight_decay)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step, and return the loss of the closure."""
        return _decay_and_step(self, super().step, closure)


class DecoupledAdamW(AdamW):
    """AdamW that multiplies the weights by `1 - weight_decay * lr / initial lr` at each step.

    Args:
        params: the parameters, or groups of them.
        lr: the learning rate.
        betas: the coefficients of AdamW's running averages.
        eps: the term that AdamW adds to the denominator.
        weight_decay: the fraction of a weight that a step removes at the initial learning rate.
        amsgrad: whether to use the AMSGrad variant.
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
        # 0.0 for torch's own decay, which grows with the rate itself
        super().__init__(params, lr, betas, eps, 0.0, amsgrad)
        _move_weight_decay(self, weight_decay)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step, and return the loss of the closure."""
        return _decay_and_step(self, super().step, closure)

    def report_per_parameter_metrics(
        self, param: torch.Tensor, name: str, optimizer_metrics: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the metrics with the norms of a parameter that has made a step added.

        They are `l2_norm/moment/NAME`, of Adam's first moment, `l2_norm/param/NAME`,
        `l2_norm/update/NAME`, of the step with its weight decay, and `l2_norm/grad/NAME`. The
        options are those of the first group, as in Composer.

        Args:
            param: the parameter.
            name: its name.
            optimizer_metrics: the metrics so far; they are added to.
        """
        state, group = self.state.get(param), self.param_groups[0]
        if not state or param.grad is None:
            return optimizer_metrics
        count, (beta1, beta2) = float(state["step"]), group["betas"]
        with torch.no_grad():
            root = (state["exp_avg_sq"] / (1 - beta2**count)).sqrt()
            update = group["lr"] / (1 - beta1**count) * state["exp_avg"] / (root + group["eps"])
            scale = group["lr"] / group["initial_lr"] if group["initial_lr"] else 1.0
            update -= group["decoupled_weight_decay"] * scale * param
            values = (
                ("moment", state["exp_avg"]),
                ("param", param),
                ("update", update),
                ("grad", param.grad),
            )
            for kind, tensor in values:
                optimizer_metrics[f"l2_norm/{kind}/{name}"] = torch.linalg.vector_norm(tensor)
        return optimizer_metrics


def _move_weight_decay(optimizer: Optimizer, decay: float) -> None:
    """Move each group's weight decay to a key of its own, so that torch applies none."""
    for group in optimizer.param_groups:
        # torch has put the argument, 0, into each group without a weight decay of its own
        group["decoupled_weight_decay"] = group["weight_decay"] or decay
        group["weight_decay"] = 0.0
        # a scheduler of torch keeps it, and would set it only when it is made
        group["initial_lr"] = group["lr"]


def _decay_and_step(
    optimizer: Optimizer, step: Callable[[], Any], closure: Callable[[], float] | None
) -> Any:
    """Compute the gradients with the closure if there is one, decay the weights, and step."""
    loss = None
    if closure is not None:  # here and not in torch's step, which would come after the decay
        with torch.enable_grad():
            loss = closure()
    with torch.no_grad():
        for group in optimizer.param_groups:
            initial_lr = group["initial_lr"]
            # an initial rate of 0 cannot be divided by: the decay is full then, as in Composer
            scale = group["lr"] / initial_lr if initial_lr else 1.0
            factor = group["decoupled_weight_decay"] * scale
            for parameter in group["params"] if factor else ():
                # the others do not take part in this step, as in torch
                if parameter.grad is not None:
                    parameter.mul_(1 - factor)
    step()
    return loss
