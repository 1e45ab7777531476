"""Train on one batch where the gradients are computed inside the optimizer's step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import OptimizationError
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.module.module import Module
from trainer_hooks.module.optimization import ManualOptimizer, needs_closure, takes_closure

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.runtime.fsdp import ShardedGradientSync
    from trainer_hooks.runtime.gradient_sync import GradientSync


class ClosureStep(TrainStep):
    """Automatic optimization with the forward and backward inside a closure.

    It serves optimizers that evaluate the loss themselves, such as LBFGS, those of other libraries
    whose `step` takes a closure, such as Lion and SAM, and modules that override `optimizer_step`.
    """

    def __init__(self, context: RunContext, inner: TrainStep) -> None:
        """Wrap `inner`, which runs the forward and backward of a batch."""
        self._inner = inner
        self._steps_made = 0
        # with a loss scaler an optimizer that can step without the closure does not get it: the
        # scaler calls the step itself, without one
        self._offers_closure = context.precision.name != "16-mixed" and any(
            map(takes_closure, context.training.optimization.optimizers)
        )
        super().__init__(context)
        # one counter: the loop asks this step, and the inner one meets the missing losses
        self.missing_losses = inner.missing_losses
        # the closure returns the loss to the optimizer, from the outputs of the inner step
        inner.always_returns_outputs = True

    def attach_sync(self, sync: GradientSync | ShardedGradientSync) -> None:
        """Average gradients over the ranks with `sync` from here on."""
        super().attach_sync(sync)
        self._inner.attach_sync(sync)

    def refresh_optimizers(self) -> None:
        """Use the optimizer that the run has now; see `TrainStep`."""
        super().refresh_optimizers()
        self._inner.refresh_optimizers()

    def renew_training_step(self) -> None:
        """Use the `training_step` that the module has now."""
        self._inner.renew_training_step()
        # the method that `connect_step` gives to the object that averages gradients
        self.training_step = self._inner.training_step

    def set_window(self, batches: int) -> None:
        """Set the number of batches of an accumulation window."""
        super().set_window(batches)
        self._inner.set_window(batches)

    def __call__(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Train on one batch; see `TrainStep`."""
        inner = self._inner
        # the closure of the batch before has left these set
        inner.is_reevaluating = inner.closes_window_next = False
        # inside a window there is no step yet: the inner step accumulates gradients
        if not closes_window or self.optimizer is None:
            return inner(batch, batch_idx, closes_window)
        optimizer = self.optimizer
        outputs: dict[str, Any] = {}

        # Optimizer.step runs under no_grad, so that without this the closure would build no graph.
        @torch.enable_grad()
        def closure() -> Tensor | None:
            nonlocal outputs
            if inner.is_reevaluating and self.accumulate > 1:
                raise OptimizationError(
                    f"{type(optimizer).__qualname__} evaluated the loss twice in a step, with "
                    f"Trainer(accumulate_grad_batches={self.accumulate}): it would need all "
                    "batches of a window again. Use larger batches."
                )
            inner.closes_window_next = self.sync is not None
            # not as the window's last batch, or the inner step would step the optimizer itself
            outputs = inner(batch, batch_idx, closes_window=False)
            inner.is_reevaluating = True
            if self.sync is not None:
                self.end_synced_batch(closes_window=True)
            if self.progress.has_gradients:
                # in each evaluation: the optimizer must see unscaled and clipped gradients
                self.finish_gradients(optimizer)
            loss = outputs.get("loss")
            evaluates = needs_closure(optimizer) or self._offers_closure
            if self.sync is not None and loss is not None and evaluates:
                # all ranks must make the same decisions, as in a line search
                return self.context.processes.reduce(loss)
            return loss

        # an override of optimizer_step calls optimizer.step(closure); the wrapper routes that to
        # `step_manually`, which counts the step and applies the loss scaling
        wrapped = ManualOptimizer(optimizer, self)
        self._steps_made = 0
        self.module.optimizer_step(self.progress.epochs_completed, batch_idx, wrapped, closure)
        if not inner.is_reevaluating:
            fault = f"{type(optimizer).__qualname__}.step was given it, and ignored it"
            if defines(self.module, "optimizer_step", Module):
                name = type(self.module).__qualname__
                fault = f"{name}.optimizer_step neither called it nor passed it on"
            raise OptimizationError(
                f"the closure of batch {batch_idx} was never called: {fault}. "
                "training_step and backward run inside of it, so nothing was learned. In "
                "optimizer_step call optimizer.step(closure=optimizer_closure), or the closure "
                "alone where no step is to be made."
            )
        # counted after the override, which reads the number of steps before its own
        for _ in range(self._steps_made):
            self.progress.steps_completed += 1
            self.hooks.on_after_optimizer_step(self.trainer, self.module, optimizer)
        return outputs

    def step_manually(
        self, optimizer: Optimizer, closure: Callable[[], Any] | None, **kwargs: Any
    ) -> Any:
        """Step as `optimizer.step(closure)` would, with the loss scaling of the run."""
        if needs_closure(optimizer) or (closure is not None and self._offers_closure):
            result = optimizer.step(closure, **kwargs)
        else:
            # the scaler's step takes no closure, so the gradients are computed before it
            result = closure() if closure is not None else None
            # every loss was skipped, so there is nothing to step with
            if closure is not None and not self.progress.has_gradients:
                return result
            self.precision.step(optimizer, **kwargs)
            self.precision.update_scale()
        self._steps_made += 1
        return result

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None:
        """Clear the gradients of an optimizer."""
        optimizer.zero_grad(set_to_none=set_to_none)

    def toggle_manually(
        self,
        optimizer: Optimizer,
        *,
        sync_grad: bool,  # noqa: ARG002 - the trainer decides when gradients are averaged
    ) -> AbstractContextManager[None]:
        """Return a context in which only one optimizer's parameters require gradients."""
        return self.module.toggled_optimizer(optimizer)
