"""Train on one batch where the module steps its optimizers itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import UsageError
from trainer_hooks.loops.module_steps import build_training_step, extract_loss, hook_outputs
from trainer_hooks.module.optimization import ManualOptimizer, needs_closure, takes_closure

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.runtime.fsdp import ShardedGradientSync
    from trainer_hooks.runtime.gradient_sync import GradientSync


class ManualStep:
    """Manual optimization: the module's `training_step` runs backward and steps.

    Attributes:
        optimizers: wrappers of the optimizers, whose steps are counted and call the hooks.
    """

    sync: GradientSync | ShardedGradientSync | None = None

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.renew_training_step()
        self.trainer = context.trainer
        self.module = context.module
        self.hooks = context.hooks
        self.progress = context.training.progress
        self.precision = context.precision
        self._optimization = context.training.optimization
        self._backwards = 0
        self._unscaled_at: dict[int, int] = {}
        self.refresh_optimizers()

    def __call__(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:  # noqa: ARG002
        """Train on one batch and return the outputs for hooks."""
        self.hooks.on_before_train_batch(self.trainer, self.module)
        # each batch is a window: whether the module steps in it is known to the module alone
        if self.sync is not None:
            self.sync.begin(closes_window=True)
        with self.precision.forward_context():
            output = self.training_step(batch, batch_idx)
        self.precision.update_scale()
        if self.sync is not None:
            self.sync.end(True, has_gradients=True, batches=0)
        # with manual optimization a dict without a loss is a valid return value
        if isinstance(output, dict) and "loss" not in output:
            return output
        return hook_outputs(output, extract_loss(output, self.module))

    def renew_training_step(self) -> None:
        """Use the `training_step` that the module has now."""
        self.training_step = build_training_step(self.context)

    def refresh_optimizers(self) -> None:
        """Wrap the optimizers that the run has now."""
        # wrapped, so that `optimizer.step()` in the module counts the step and calls the hooks
        self.optimizers = [ManualOptimizer(o, self) for o in self._optimization.optimizers]

    def attach_sync(self, sync: GradientSync | ShardedGradientSync) -> None:
        """Average gradients over the ranks with `sync` from here on."""
        self.sync, self.training_step = sync, sync.step

    def set_window(self, batches: int) -> None:  # noqa: ARG002
        """Start an epoch; in manual optimization each batch is its own window."""
        if self.sync is not None:
            self.sync.refresh(is_window_open=False)

    def skip(self, batch_idx: int, closes_window: bool) -> dict[str, Any]:  # noqa: ARG002
        """Skip a batch.

        Raises:
            UsageError: there are several ranks: the others may wait for this one's gradients.
        """
        if self.sync is not None:
            raise UsageError(
                f"rank {self.trainer.global_rank} left a batch out in manual optimization: the "
                "other processes wait for its gradients. Decide in training_step, alike in all."
            )
        return {}

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute gradients, with the hooks before and after."""
        # the hook gets the loss that is differentiated, as with automatic optimization
        scaled = self.precision.scale(loss)
        self._backwards += 1
        self.hooks.on_before_backward(self.trainer, self.module, scaled)
        if self.sync is not None:
            self.sync.prepare_manual_backward(scaled)
        self.module.backward(scaled, *args, **kwargs)
        if self.sync is not None:
            self.sync.finish_manual_backward()
        self.hooks.on_after_backward(self.trainer, self.module)

    def unscale(self, optimizer: Any) -> None:
        """Divide an optimizer's gradients by the loss scale, to clip them before its step.

        Raises:
            UsageError: a backward has added scaled gradients to those that were unscaled before.
        """
        if self.precision.scaler is None:
            return
        optimizer = getattr(optimizer, "optimizer", optimizer)
        if self._unscaled_at.setdefault(id(optimizer), self._backwards) != self._backwards:
            raise UsageError(
                f"{type(self.module).__qualname__} has called clip_gradients, a backward, and "
                f"clip_gradients again before the step of a {type(optimizer).__qualname__}: with "
                "precision='16-mixed' the gradients that are clipped are without the loss scale, "
                "and the backward adds some with it. Clip once, right before optimizer.step()."
            )
        self.precision.unscale(optimizer)

    def step_manually(
        self, optimizer: Optimizer, closure: Callable[[], Any] | None, **kwargs: Any
    ) -> Any:
        """Step one optimizer, with the hooks before and after."""
        result = None
        evaluates = needs_closure(optimizer) or (
            closure is not None and takes_closure(optimizer) and self.precision.name != "16-mixed"
        )
        if closure is not None and not evaluates:
            result = closure()
        # before the hook, which sees and may clip the true gradients
        self.precision.unscale(optimizer)
        self._unscaled_at.pop(id(optimizer), None)
        self.hooks.on_before_optimizer_step(self.trainer, self.module, optimizer)
        # at once: gradients are clipped by the module, before it calls `step`
        self.hooks.on_after_train_batch(self.trainer, self.module)
        if evaluates:
            result = optimizer.step(closure, **kwargs)
        else:
            self.precision.step(optimizer, **kwargs)
        self.progress.steps_completed += 1
        self.hooks.on_after_optimizer_step(self.trainer, self.module, optimizer)
        return result

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None:
        """Clear one optimizer's gradients, with the hook before it."""
        self.hooks.on_before_zero_grad(self.trainer, self.module, optimizer)
        optimizer.zero_grad(set_to_none=set_to_none)
        self.precision.drop_gradients(optimizer)
        self._unscaled_at.pop(id(optimizer), None)

    def toggle_manually(
        self, optimizer: Optimizer, *, sync_grad: bool
    ) -> AbstractContextManager[None]:
        """Return a context in which only one optimizer's parameters require gradients.

        Raises:
            UsageError: gradients are not to be averaged, and there are several ranks.
        """
        if not sync_grad and self.sync is not None:
            raise UsageError(
                "toggle_model(sync_grad=False): each manual_backward averages the gradients over "
                "the ranks. Leave it out."
            )
        return self.module.toggled_optimizer(optimizer)
