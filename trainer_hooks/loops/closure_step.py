"""A training batch whose gradients are computed inside the optimizer's step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.errors import OptimizationError
from trainer_hooks.loops.steps import overrides
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.module import ManualOptimizer, needs_closure, takes_closure

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.context import RunContext
    from trainer_hooks.runtime import GradientSync, ShardedSync

__all__ = ["ClosureStep"]


def may_evaluate(context: RunContext) -> bool:
    """Return whether an optimizer is handed the closure that may do without one.

    It is not under a loss scaler, which steps by itself.
    """
    if context.precision.name == "16-mixed":
        return False
    return any(map(takes_closure, context.training.optimization.optimizers))


class ClosureStep(TrainStep):
    """Automatic optimization where the gradients are computed inside the optimizer's step.

    So it is for an optimizer that evaluates the loss itself, as LBFGS does, and for a module that
    overrides `optimizer_step`.
    """

    def __init__(self, context: RunContext, inner: TrainStep) -> None:
        """Make one whose batches are run by `inner`, forward and backward."""
        self._inner = inner
        self._made = 0
        self._may_evaluate = may_evaluate(context)
        super().__init__(context)
        self.missing = inner.missing
        inner.returns_outputs = True

    def join(self, sync: GradientSync | ShardedSync) -> None:
        """Take part in what several processes do."""
        super().join(sync)
        self._inner.join(sync)

    def take_optimizers(self) -> None:
        """Step with the optimizer that there is now; see `TrainStep`."""
        super().take_optimizers()
        self._inner.take_optimizers()

    def set_window(self, batches: int) -> None:
        """Let so many batches make one step."""
        super().set_window(batches)
        self._inner.set_window(batches)

    def __call__(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Take one batch in; see `TrainStep`."""
        inner = self._inner
        inner.is_repeating = inner.closes_next = False
        if not closes_window or self.optimizer is None:
            return inner(batch, batch_idx, closes_window)
        optimizer = self.optimizer
        outputs: dict[str, Any] = {}

        @torch.enable_grad()
        def closure() -> Tensor | None:
            nonlocal outputs
            if inner.is_repeating and self.accumulate > 1:
                raise OptimizationError(
                    f"{type(optimizer).__qualname__} evaluated the loss twice in a step, with "
                    f"Trainer(accumulate_grad_batches={self.accumulate}): it would need all "
                    "batches of a window again. Use larger batches."
                )
            inner.closes_next = self.sync is not None
            outputs = inner(batch, batch_idx, closes_window=False)
            inner.is_repeating = True
            if self.sync is not None:
                self.end_batch(closes_window=True)
            if self.progress.has_gradients:
                self.finish_gradients(optimizer)
            loss = outputs.get("loss")
            evaluates = needs_closure(optimizer) or self._may_evaluate
            if self.sync is not None and loss is not None and evaluates:
                return self.sync.mean(loss)  # what the optimizer decides by is the same in all
            return loss

        wrapped = ManualOptimizer(optimizer, self)
        self._made = 0
        self.module.optimizer_step(self.progress.epochs_completed, batch_idx, wrapped, closure)
        if not inner.is_repeating:
            raise OptimizationError(
                f"the closure of batch {batch_idx} was never called: {self._who_drops_it()}. "
                "training_step and backward run inside of it, so nothing was learned. In "
                "optimizer_step call optimizer.step(closure=optimizer_closure), or the closure "
                "alone where no step is to be made."
            )
        for _ in range(self._made):  # counted now: an override goes by the steps before its own
            self.progress.steps_completed += 1
            self.hooks.on_after_optimizer_step(self.trainer, self.module, optimizer)
        return outputs

    def _who_drops_it(self) -> str:
        if overrides(self.module, "optimizer_step"):
            name = type(self.module).__qualname__
            return f"{name}.optimizer_step neither called it nor passed it on"
        return f"{type(self.optimizer).__qualname__}.step was given it, and ignored it"

    def step_manually(self, optimizer: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """Step as `optimizer.step(closure)` would, with the run's precision."""
        if needs_closure(optimizer) or (closure is not None and self._may_evaluate):
            result = optimizer.step(closure)
        else:
            result = closure() if closure is not None else None
            if closure is not None and not self.progress.has_gradients:
                return result
            self.precision.step(optimizer)
        self._made += 1
        return result

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None:
        """Clear the gradients."""
        optimizer.zero_grad(set_to_none=set_to_none)
