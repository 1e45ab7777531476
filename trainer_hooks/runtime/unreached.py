"""Parameters that a step of several processes gave no gradient, for which the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.errors import OptimizationError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["require_gradients"]


def require_gradients(module: nn.Module, what: str, strategy: str) -> None:
    """Make sure that each trained parameter of a module has a gradient.

    Args:
        module: the module.
        what: what it is called in the message.
        strategy: the name of the strategy's class, which can allow for such parameters.

    Raises:
        OptimizationError: some have none; they are named.
    """
    missing = [
        name
        for name, parameter in module.named_parameters()
        if parameter.grad is None and parameter.requires_grad
    ]
    if missing:
        raise OptimizationError(
            f"the parameters {', '.join(missing)} of {what} got no gradient in a step of several "
            "processes, which must all have the same: use them in the loss, set requires_grad = "
            f"False, or pass Trainer(strategy={strategy}(find_unused_parameters=True))."
        )
