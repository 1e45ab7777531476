"""What is done with one training batch where the module optimizes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import UsageError
from trainer_hooks.loops.steps import loss_of, outputs_of, training_step
from trainer_hooks.module import ManualOptimizer, needs_closure, takes_closure

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.context import RunContext
    from trainer_hooks.runtime import GradientSync, ShardedSync

__all__ = ["ManualStep"]


class ManualStep:
    """Manual optimization: the module's `training_step` does it all.

    Attributes:
        optimizers: the optimizers, wrapped so that their steps count and fire the hooks.
    """

    sync: GradientSync | ShardedSync | None = None

    def __init__(self, context: RunContext) -> None:
        self.training_step = training_step(context)
        self.trainer = context.trainer
        self.module = context.module
        self.hooks = context.hooks
        self.progress = context.training.progress
        self.precision = context.precision
        self._optimization = context.training.optimization
        self.take_optimizers()

    def __call__(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:  # noqa: ARG002
        """Take one batch in and return the outputs that hooks are given."""
        self.hooks.on_before_train_batch(self.trainer, self.module)
        if self.sync is not None:
            self.sync.begin(closes_window=True)
        with self.precision.forward_context():
            output = self.training_step(batch, batch_idx)
        if self.sync is not None:
            self.sync.end(True, has_gradients=True, batches=0)
        if isinstance(output, dict) and "loss" not in output:
            return output
        return outputs_of(output, loss_of(output, self.module))

    def take_optimizers(self) -> None:
        """Give the module the optimizers that there are now."""
        self.optimizers = [ManualOptimizer(o, self) for o in self._optimization.optimizers]

    def join(self, sync: GradientSync | ShardedSync) -> None:
        """Take part in what several processes do."""
        self.sync, self.training_step = sync, sync.step

    def set_window(self, batches: int) -> None:  # noqa: ARG002
        """Begin an epoch: here a window is one batch."""
        if self.sync is not None:
            self.sync.refresh(is_window_open=False)

    def skip(self, batch_idx: int, closes_window: bool) -> dict[str, Any]:  # noqa: ARG002
        """Leave one batch out.

        Raises:
            UsageError: there are several processes, and no telling what the others do with theirs.
        """
        if self.sync is not None:
            raise UsageError(
                f"rank {self.trainer.global_rank} left a batch out in manual optimization: the "
                "other processes wait for its gradients. Decide in training_step, alike in all."
            )
        return {}

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute gradients, with the hooks around it."""
        scaled = self.precision.scale(loss)
        self.hooks.on_before_backward(self.trainer, self.module, scaled)
        if self.sync is not None:
            self.sync.prepare(scaled)
        self.module.backward(scaled, *args, **kwargs)
        if self.sync is not None:
            self.sync.finish_manual()
        self.hooks.on_after_backward(self.trainer, self.module)

    def step_manually(self, optimizer: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """Let one optimizer step, with the hooks around it."""
        result = None
        evaluates = needs_closure(optimizer) or (
            closure is not None and takes_closure(optimizer) and self.precision.name != "16-mixed"
        )
        if closure is not None and not evaluates:
            result = closure()
        self.precision.unscale(optimizer)
        self.hooks.on_before_optimizer_step(self.trainer, self.module, optimizer)
        if evaluates:
            result = optimizer.step(closure)
        else:
            self.precision.step(optimizer)
        self.progress.steps_completed += 1
        self.hooks.on_after_optimizer_step(self.trainer, self.module, optimizer)
        return result

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None:
        """Clear one optimizer's gradients, with the hook before it."""
        self.hooks.on_before_zero_grad(self.trainer, self.module, optimizer)
        optimizer.zero_grad(set_to_none=set_to_none)
