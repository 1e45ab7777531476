"""Which step a run takes, by what its module and its options ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.errors import OptimizationError
from trainer_hooks.loops.steps import overrides
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.module import needs_closure, takes_closure

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.manual_step import ManualStep

__all__ = ["make_step"]


def make_step(context: RunContext) -> TrainStep | ManualStep:
    """Return the step that the module's optimization asks for, of one process or several.

    Raises:
        OptimizationError: several optimizers with automatic optimization, or options that manual
            optimization, or several processes, have no use for.
    """
    step = _step_of_one(context)
    context.retake = step.take_optimizers
    if context.processes.is_several:
        from trainer_hooks.loops.synchronized import synchronize

        synchronize(step, context)
    return step


def _step_of_one(context: RunContext) -> TrainStep | ManualStep:
    """Return the step that the module's optimization asks for.

    Raises:
        OptimizationError: several optimizers with automatic optimization, or options that manual
            optimization has no use for.
    """
    module, plan = context.module, context.plan
    if not module.automatic_optimization:
        for option, value, unused in (
            ("gradient_clip_val", plan.gradient_clip_val, None),
            ("accumulate_grad_batches", plan.accumulate_grad_batches, 1),
            ("microbatch_size", plan.microbatch_size, None),
        ):
            if value != unused:
                raise OptimizationError(
                    f"Trainer({option}={value!r}) has no effect with manual optimization, which "
                    f"{type(module).__qualname__} asks for: leave it out, and do it in "
                    "training_step (self.clip_gradients(...), or step every n-th batch)."
                )
        from trainer_hooks.loops.manual_step import ManualStep

        step = ManualStep(context)
        module.attach_manual(step)
        return step
    has_own_step = overrides(module, "optimizer_step")
    evaluates_loss = any(needs_closure(o) for o in context.training.optimization.optimizers)
    if has_own_step or evaluates_loss:
        if evaluates_loss and plan.accumulate_grad_batches > 1:
            raise OptimizationError(
                f"Trainer(accumulate_grad_batches={plan.accumulate_grad_batches}) cannot be used "
                "with an optimizer that evaluates the loss itself, such as LBFGS: it would need "
                "all batches of a window again at each evaluation. Use larger batches."
            )
        if context.precision.name == "16-mixed" and not has_own_step:
            raise OptimizationError(
                "Trainer(precision='16-mixed') cannot be used with an optimizer that evaluates the "
                "loss itself, such as LBFGS: its gradients cannot be unscaled. Use bf16-mixed."
            )
        from trainer_hooks.loops.closure_step import ClosureStep

        return ClosureStep(context, _plain_step(context))
    if any(map(takes_closure, context.training.optimization.optimizers)):
        from trainer_hooks.loops.closure_step import ClosureStep, may_evaluate

        if may_evaluate(context):
            return ClosureStep(context, _plain_step(context))
    return _plain_step(context)


def _plain_step(context: RunContext) -> TrainStep:
    """Return what runs the forward and backward of a batch, as a whole or in parts."""
    size = context.plan.microbatch_size
    if size is None:
        return TrainStep(context)
    from trainer_hooks.loops.microbatches import FittingStep, MicrobatchStep

    return FittingStep(context) if size == "auto" else MicrobatchStep(context)
