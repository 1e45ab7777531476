"""What is done with one training batch: forward, backward, and at the end of a window the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from trainer_hooks.errors import OptimizationError
from trainer_hooks.loops.missing_losses import MissingLosses
from trainer_hooks.loops.steps import check_loss, loss_of, outputs_of, overrides, training_step
from trainer_hooks.module import needs_closure

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.module import Module
    from trainer_hooks.runtime import GradientSync, ShardedSync

__all__ = ["TrainStep"]


class TrainStep:
    """Automatic optimization, in a straight line.

    ::

        at the start of a window: clear the gradients
        loss = training_step(batch, batch_idx)
        backward(loss / batches of a window)
        at the end of a window: clip, step

    Hooks fire between all of these, as the catalogue says.
    """

    returns_outputs = False
    """Whether outputs are returned even if no hook wants them."""

    is_repeating = False
    """Whether a batch is run again, so that its window is open already."""

    has_skipped = False
    """Whether a loss was left out since this was last set to False."""

    sync: GradientSync | ShardedSync | None = None
    """What averages gradients over several processes."""

    closes_next = False
    """Whether the next forward is a window's last, although others than its caller end that."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.training_step = training_step(context)
        self.trainer = context.trainer
        self.module = context.module
        self.hooks = context.hooks
        self.progress = context.training.progress
        self.precision = context.precision
        self.plan = context.plan
        self.missing = MissingLosses(context)
        self.take_optimizers()
        self.accumulate: float = context.plan.accumulate_grad_batches
        self._own_backward = overrides(self.module, "backward")
        self._gives_shares = context.trainer.divides_outputs
        self._own_zero_grad = overrides(self.module, "optimizer_zero_grad")
        self._clips = context.plan.gradient_clip_val is not None or overrides(
            self.module, "configure_gradient_clipping"
        )

    def __call__(  # noqa: C901 - a straight line, whose every call would cost each batch
        self, batch: Any, batch_idx: int, closes_window: bool
    ) -> dict[str, Any]:
        """Take one batch in; return the outputs for hooks, if one wants them and none was skipped.

        Those of an epoch's last batch are returned in any case.

        Raises:
            ModuleError: `training_step` returned what is no loss, or one without a gradient.
        """
        trainer, module, hooks, progress = self.trainer, self.module, self.hooks, self.progress
        is_plain = self.precision.is_plain
        if progress.batches_in_window == 0:
            self.open_window(batch_idx)
        if self.sync is not None:
            self.sync.begin(closes_window or self.closes_next)
        if is_plain:
            output = self.training_step(batch, batch_idx)
        else:
            with self.precision.forward_context():
                output = self.training_step(batch, batch_idx)
        returned = loss = output if type(output) is Tensor else loss_of(output, module)
        if loss is not None:
            if loss.ndim or not loss.requires_grad:
                check_loss(loss, module)
            if self.accumulate > 1:
                loss = loss / self.accumulate
                if self._gives_shares:
                    returned = loss
            if not is_plain:
                loss = self.precision.scale(loss)
            hooks.on_before_backward(trainer, module, loss)
            if self.context.asked.skips_batch:
                self.context.asked.skips_batch, returned = False, None
                self.has_skipped = True
            else:
                if self.sync is not None:
                    self.reduce(loss)
                elif self._own_backward:
                    module.backward(loss)
                else:
                    loss.backward()  # type: ignore[no-untyped-call]
                hooks.on_after_backward(trainer, module)
                progress.has_gradients = True
        else:
            self.missing.note(batch_idx)
        if self.sync is not None:
            self.end_batch(closes_window)
        if closes_window and progress.has_gradients:
            self.update()
        if (
            self.returns_outputs
            or "on_train_batch_end" in hooks.listened
            or self.context.batch.is_last  # whose loss is looked at
        ):
            return outputs_of(output, returned)
        return {}

    def take_optimizers(self) -> None:
        """Step with the optimizer that there is now.

        Raises:
            OptimizationError: there are several, or it evaluates the loss itself, which the step
                was not made for.
        """
        before: Optimizer | None = vars(self).get("optimizer")
        optimizer = _only(self.context.training.optimization.optimizers, self.module)
        if before and optimizer and needs_closure(before) != needs_closure(optimizer):
            raise OptimizationError(
                f"trainer.optimizers was set to one of {type(optimizer).__qualname__}, in the "
                f"place of {type(before).__qualname__}: one of them evaluates the loss itself, "
                "so that a step is made otherwise. Return it from configure_optimizers."
            )
        self.optimizer = optimizer
        self._clears_directly = optimizer is not None and _clears_plainly(optimizer)

    def join(self, sync: GradientSync | ShardedSync) -> None:
        """Take part in what several processes do."""
        self.sync, self.training_step = sync, sync.step

    def set_window(self, batches: int) -> None:
        """Let so many batches make one step, in an epoch that begins."""
        self.accumulate = batches
        if self.sync is not None:
            self.sync.refresh(is_window_open=self.progress.batches_in_window > 0)

    def reduce(self, loss: Tensor) -> None:
        """Run the backward of one of several processes."""
        assert self.sync is not None
        if self._own_backward:
            self.sync.before_backward(loss)
            self.module.backward(loss)
        else:
            self.sync.backward(loss)
        self.sync.note_backward()

    def end_batch(self, closes_window: bool) -> None:
        """End the part that a batch has in what several processes do."""
        progress = self.progress
        assert self.sync is not None
        progress.has_gradients = self.sync.end(
            closes_window, progress.has_gradients, progress.batches_completed
        )

    def skip(self, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Leave one batch out; the window that it belongs to begins and ends all the same."""
        if self.progress.batches_in_window == 0 and (self.sync is None or not self.sync.is_begun):
            self.open_window(batch_idx)
        if self.sync is not None:
            self.sync.leave_out(closes_window, self.progress.batches_completed)
            self.end_batch(closes_window)
        if closes_window and self.progress.has_gradients:
            self.update()
        return {}

    def open_window(self, batch_idx: int) -> None:
        """Begin to accumulate: forget what was accumulated before."""
        optimizer, hooks, progress = self.optimizer, self.hooks, self.progress
        progress.has_gradients = False
        if not self.is_repeating:
            hooks.on_before_train_batch(self.trainer, self.module)
        if optimizer is None:
            return
        hooks.on_before_zero_grad(self.trainer, self.module, optimizer)
        if self._own_zero_grad:
            self.module.optimizer_zero_grad(progress.epochs_completed, batch_idx, optimizer)
        elif self._clears_directly:
            # what Optimizer.zero_grad does, without its profiler label, which costs more than it
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        else:
            optimizer.zero_grad()

    def update(self) -> None:
        """Step with what was accumulated, unscaled and clipped."""
        optimizer = self.optimizer
        if optimizer is None:
            self.progress.steps_completed += 1  # which max_steps would wait for
            return
        self.finish_gradients(optimizer)
        if self.precision.is_plain:
            optimizer.step()
        else:
            self.precision.step(optimizer)
        self.progress.steps_completed += 1
        self.hooks.on_after_optimizer_step(self.trainer, self.module, optimizer)

    def finish_gradients(self, optimizer: Optimizer) -> None:
        """Unscale and clip a window's gradients."""
        trainer, module, hooks = self.trainer, self.module, self.hooks
        if not self.precision.is_plain:
            self.precision.unscale(optimizer)
        hooks.on_before_optimizer_step(trainer, module, optimizer)
        if self._clips:
            module.configure_gradient_clipping(
                optimizer,
                gradient_clip_val=self.plan.gradient_clip_val,
                gradient_clip_algorithm=self.plan.gradient_clip_algorithm,
            )
        hooks.on_after_train_batch(trainer, module)


def _only(optimizers: list[Optimizer], module: Module) -> Optimizer | None:
    if len(optimizers) > 1:
        raise OptimizationError(
            f"{type(module).__qualname__}.configure_optimizers returned {len(optimizers)} "
            "optimizers: automatic optimization takes one. Set self.automatic_optimization = False "
            "in __init__ and step each in training_step, or put the parameters into groups of one."
        )
    return optimizers[0] if optimizers else None


def _clears_plainly(optimizer: Optimizer) -> bool:
    """Return whether an optimizer's `zero_grad` is torch's own."""
    return type(optimizer).zero_grad is Optimizer.zero_grad and "zero_grad" not in vars(optimizer)
