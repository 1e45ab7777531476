"""Optimizers as a module is given them where the trainer steps: whole, but not to be stepped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from trainer_hooks.errors import UsageError
from trainer_hooks.module.optimization import ManualOptimizer

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["without_step"]


class _Refusal:
    """Stands where the loop of manual optimization would."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def step_manually(self, optimizer: Optimizer, closure: Any) -> NoReturn:
        raise UsageError(
            f"{self._owner}.optimizers() gave {type(optimizer).__qualname__}, whose step() was "
            "called with automatic optimization: the trainer steps it after training_step. Leave "
            "the call out, or set self.automatic_optimization = False in __init__."
        )

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None:
        optimizer.zero_grad(set_to_none=set_to_none)


def without_step(optimizer: Optimizer, owner: str) -> ManualOptimizer:
    """Return an optimizer wrapped, so that its `step` is an error.

    Args:
        optimizer: it.
        owner: the module's name, for the message.
    """
    return ManualOptimizer(optimizer, _Refusal(owner))
