"""Train on one batch: forward, backward, and at the end of an accumulation window the step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from trainer_hooks._log import warn
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import ModuleError, OptimizationError, TrainerHooksWarning
from trainer_hooks.loops.module_steps import (
    build_training_step,
    check_loss,
    extract_loss,
    hook_outputs,
)
from trainer_hooks.module.module import Module
from trainer_hooks.module.optimization import needs_closure

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.runtime.fsdp import ShardedGradientSync
    from trainer_hooks.runtime.gradient_sync import GradientSync

ENDLESS_LOADER_LIMIT = 1000
"""Batches without a loss after which an epoch of unknown length is an error; likewise steps."""


class TrainStep:
    """Automatic optimization: one training batch, in a straight line.

    ::

        at the start of a window: clear the gradients
        loss = training_step(batch, batch_idx)
        backward(loss / batches of a window)
        at the end of a window: clip, step

    Between these steps the hooks of the catalogue are called.
    """

    always_returns_outputs = False
    """Whether outputs are returned even if no hook needs them."""

    is_reevaluating = False
    """Whether the batch is run once more, so that its accumulation window is open already."""

    has_skipped_loss = False
    """Whether a loss was skipped since this was last set to False."""

    sync: GradientSync | ShardedGradientSync | None = None
    """Averages the gradients over the ranks; None in a run of one rank."""

    steps_several = False
    """Whether several optimizers may step with the gradients of one backward."""

    closes_window_next = False
    """Whether the next forward is the window's last, although `closes_window` is False."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.renew_training_step()
        self.trainer = context.trainer
        self.module = context.module
        self.hooks = context.hooks
        self.progress = context.training.progress
        self.precision = context.precision
        self.plan = context.plan
        self.missing_losses = self.make_loss_check(context)
        self.refresh_optimizers()
        # divides each loss. `MicrobatchStep` sets numbers that are not whole, for unequal parts
        self.accumulate: float = context.plan.accumulate_grad_batches
        self._overrides_backward = defines(self.module, "backward", Module)
        self._returns_scaled_loss = context.plan.divides_outputs
        self._overrides_zero_grad = defines(self.module, "optimizer_zero_grad", Module)
        self._clips = context.plan.gradient_clip_val is not None or defines(
            self.module, "configure_gradient_clipping", Module
        )

    @staticmethod
    def make_loss_check(context: RunContext) -> MissingLossCheck:
        """Return the check of batches without a loss."""
        return MissingLossCheck(context)

    def __call__(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Train on one batch and return the outputs for hooks, empty if no hook needs them.

        The outputs of an epoch's last batch are always returned. A skipped batch has none.

        Raises:
            ModuleError: `training_step` returned neither a loss nor None, or a loss without
                gradient.
        """
        # names that a batch needs are bound to locals first: at a few microseconds for a whole
        # step, attribute look-ups and calls count
        module, hooks, progress = self.module, self.hooks, self.progress
        if progress.batches_in_window == 0:
            self.open_window(batch_idx)
        if self.sync is not None:
            # before the forward, in which DDP decides whether the backward reduces gradients
            self.sync.begin(closes_window or self.closes_window_next)
        if self.precision.is_plain:
            output = self.training_step(batch, batch_idx)
        else:
            with self.precision.forward_context():
                output = self.training_step(batch, batch_idx)
        # the exact type first, so that the common case costs no call
        returned = loss = output if type(output) is Tensor else extract_loss(output, module)
        if loss is not None:
            if loss.ndim or not loss.requires_grad:
                check_loss(loss, f"{type(module).__qualname__}.training_step returned")
            returned = self.differentiate(loss)
        else:
            self.missing_losses.count(batch_idx)
        if self.sync is not None:
            self.end_synced_batch(closes_window)
        if closes_window and progress.has_gradients:
            self.update()
        if (
            self.always_returns_outputs
            or "on_train_batch_end" in hooks.listened
            or self.context.batch.is_last  # its loss is checked in any case
        ):
            return hook_outputs(output, returned)
        return {}

    def differentiate(self, loss: Tensor, **options: Any) -> Tensor | None:
        """Run the backward of a loss, divided for accumulation and scaled, with its hooks.

        Args:
            loss: the loss.
            options: options of `torch.Tensor.backward`.

        Returns:
            The loss as hooks of the batch's end get it; None if a hook skipped it.
        """
        trainer, module, hooks = self.trainer, self.module, self.hooks
        returned = loss
        if self.accumulate > 1:
            # by the full number also in a shorter last window of an epoch, as in Lightning
            loss = loss / self.accumulate
            if self._returns_scaled_loss:
                returned = loss
        if not self.precision.is_plain:
            loss = self.precision.scale(loss)
        hooks.on_before_backward(trainer, module, loss)
        if self.context.requests.skips_batch:
            self.context.requests.skips_batch = False
            self.has_skipped_loss = True
            return None
        if self.sync is not None:
            self.backward_synced(loss, **options)
        elif self._overrides_backward:
            module.backward(loss, **options)
        else:
            # straight to the tensor: Module.backward would be one more frame and call in each step
            loss.backward(**options)  # type: ignore[no-untyped-call]
        hooks.on_after_backward(trainer, module)
        self.progress.has_gradients = True
        return returned

    def refresh_optimizers(self) -> None:
        """Use the optimizer that the run has now.

        Raises:
            OptimizationError: there are several optimizers, or the new one needs a closure and the
                old one did not, or the reverse: the step was built for one of the two.
        """
        previous: Optimizer | None = vars(self).get("optimizer")
        optimizers = self.context.training.optimization.optimizers
        if len(optimizers) > 1:
            raise OptimizationError(
                f"{type(self.module).__qualname__}.configure_optimizers returned {len(optimizers)} "
                "optimizers: automatic optimization takes one. Set self.automatic_optimization = "
                "False in __init__ and step each in training_step, or put the parameters into "
                "groups of one."
            )
        optimizer = optimizers[0] if optimizers else None
        if previous and optimizer and needs_closure(previous) != needs_closure(optimizer):
            raise OptimizationError(
                f"trainer.optimizers was set to one of {type(optimizer).__qualname__}, in the "
                f"place of {type(previous).__qualname__}: one of them evaluates the loss itself, "
                "so that a step is made otherwise. Return it from configure_optimizers."
            )
        self.optimizer = optimizer
        # an optimizer with a `zero_grad` of its own, in its class or on the instance, is called
        self._clears_grads_directly = (
            type(optimizer).zero_grad is Optimizer.zero_grad and "zero_grad" not in vars(optimizer)
            if optimizer is not None
            else False
        )

    def renew_training_step(self) -> None:
        """Use the `training_step` that the module has now."""
        self.training_step = build_training_step(self.context)

    def attach_sync(self, sync: GradientSync | ShardedGradientSync) -> None:
        """Average gradients over the ranks with `sync` from here on."""
        # with DDP the step runs in its forward, which prepares the reduction of the backward
        self.sync, self.training_step = sync, sync.step

    def set_window(self, batches: int) -> None:
        """Set the number of batches of an accumulation window, at the start of an epoch."""
        # at each epoch: a callback may have changed the number
        self.accumulate = batches
        if self.sync is not None:
            self.sync.refresh(is_window_open=self.progress.batches_in_window > 0)

    def backward_synced(self, loss: Tensor, **options: Any) -> None:  # noqa: ARG002
        """Run the backward of one rank of several."""
        assert self.sync is not None
        # a module's own backward cannot take the flag of the ranks along, so it is sent before
        if self._overrides_backward:
            self.sync.before_backward(loss)
            self.module.backward(loss)
        else:
            self.sync.backward(loss)
        self.sync.finish_backward()

    def end_synced_batch(self, closes_window: bool) -> None:
        """End a batch of one rank of several: complete the reduction of its window."""
        progress = self.progress
        assert self.sync is not None
        # all ranks step or none: one with gradients makes those without step with zeros
        progress.has_gradients = self.sync.end(
            closes_window, progress.has_gradients, progress.batches_completed
        )

    def skip(self, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Skip a batch; its accumulation window begins and ends as if it had been trained."""
        # a batch whose step raised StopTraining after `sync.begin` has opened its window already;
        # in a run of several ranks it comes here
        if self.progress.batches_in_window == 0 and (
            self.sync is None or not self.sync.is_batch_open
        ):
            self.open_window(batch_idx)
        if self.sync is not None:
            self.sync.skip_batch(closes_window, self.progress.batches_completed)
            self.end_synced_batch(closes_window)
        if closes_window and self.progress.has_gradients:
            self.update()
        return {}

    def open_window(self, batch_idx: int) -> None:
        """Start an accumulation window: clear the gradients of the one before."""
        optimizer, hooks, progress = self.optimizer, self.hooks, self.progress
        progress.has_gradients = False
        # a closure that is called again runs the same window, of which the hook has been told
        if not self.is_reevaluating:
            hooks.on_before_train_batch(self.trainer, self.module)
        if optimizer is None:
            return
        self.clear_gradients(optimizer, batch_idx)

    def clear_gradients(self, optimizer: Optimizer, batch_idx: int) -> None:
        """Clear the gradients of an optimizer's parameters, with the hook before it."""
        self.hooks.on_before_zero_grad(self.trainer, self.module, optimizer)
        if self._overrides_zero_grad:
            self.module.optimizer_zero_grad(self.progress.epochs_completed, batch_idx, optimizer)
        elif self._clears_grads_directly:
            # equal to Optimizer.zero_grad without its profiler label, which takes longer than the
            # loop
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        else:
            optimizer.zero_grad()

    def update(self) -> None:
        """Unscale and clip the accumulated gradients, and step the optimizer."""
        optimizer = self.optimizer
        if optimizer is None:
            # a module without an optimizer must count steps too, or max_steps would never be
            # reached
            self.progress.steps_completed += 1
            return
        self.step_optimizer(optimizer)

    def step_optimizer(self, optimizer: Optimizer) -> None:
        """Unscale and clip the gradients of an optimizer's parameters, and step it."""
        self.finish_gradients(optimizer)
        if self.precision.is_plain:
            optimizer.step()
        else:
            self.precision.step(optimizer)
            if not self.steps_several:
                self.precision.update_scale()
        self.progress.steps_completed += 1
        self.hooks.on_after_optimizer_step(self.trainer, self.module, optimizer)

    def finish_gradients(self, optimizer: Optimizer) -> None:
        """Unscale and clip the gradients of a window, with the hooks around that."""
        trainer, module, hooks = self.trainer, self.module, self.hooks
        if not self.precision.is_plain:
            # before the hook and clipping, which work on the true gradients
            self.precision.unscale(optimizer)
        hooks.on_before_optimizer_step(trainer, module, optimizer)
        # after the hook, so that it sees the gradients as they are, as in Lightning
        if self._clips:
            module.configure_gradient_clipping(
                optimizer,
                gradient_clip_val=self.plan.gradient_clip_val,
                gradient_clip_algorithm=self.plan.gradient_clip_algorithm,
            )
        hooks.on_after_train_batch(trainer, module)


class MissingLossCheck:
    """Count the batches of an epoch for which `training_step` returned no loss.

    A batch that has a loss costs nothing.

    Args:
        context: the run context, with automatic optimization.
    """

    cure = "Return the loss"
    """What to do about a single batch, for messages."""

    cure_of_all = (
        "Write `return loss` at its end, or set self.automatic_optimization = False in __init__ to "
        "optimize by yourself"
    )
    """What to do if all batches have none, for messages."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._event = self._describe_event()
        self._has_warned = False
        self._last = (-1, -1)
        self._num_missing = 0

    def _describe_event(self) -> str:
        """Return the effect of a batch without a loss, for messages."""
        return f"{type(self._context.module).__qualname__}.training_step returned None"

    def count(self, batch_idx: int) -> None:
        """Count a batch, or a microbatch of it, without a loss; warn once.

        Raises:
            ModuleError: the loader has no end, and no batch of the epoch had a loss so far.
        """
        context = self._context
        if not context.training.optimization.optimizers:
            return  # without an optimizer nothing is learned in any case
        progress = context.training.progress
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"{self._event} in epoch {progress.epochs_completed}, batch {batch_idx}: such a "
                f"batch is skipped, and nothing is learned from it. {self.cure}, unless that is "
                "meant.",
                TrainerHooksWarning,
            )
        # each microbatch of a batch comes here; the batch counts once
        batch_position = (progress.epochs_completed, batch_idx)
        if batch_position == self._last:
            return
        if batch_position[0] != self._last[0]:
            self._num_missing = 0
        self._last = batch_position
        self._num_missing += 1
        # the check at the end of the epoch would never come
        if self._num_missing >= ENDLESS_LOADER_LIMIT and (
            context.data.stream is not None and context.data.stream.num_batches == math.inf
        ):
            self.require_one_loss(batch_idx + 1)

    def require_one_loss(self, batches: int) -> None:
        """Check that one of the epoch's first `batches` batches had a loss.

        Raises:
            ModuleError: none had.
        """
        epoch = self._context.training.progress.epochs_completed
        # a stop may have cut off batches that would have had a loss
        is_all = self._last[0] == epoch and self._num_missing >= batches
        if is_all and not self._context.requests.is_stopping:
            raise ModuleError(
                f"{self._event} for each of {batches} batches of epoch {epoch}: nothing can be "
                f"learned without a loss. {self.cure_of_all}."
            )
