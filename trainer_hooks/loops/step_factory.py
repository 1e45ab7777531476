"""Choose the training step of a run, by its module and options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.errors import OptimizationError
from trainer_hooks.loops.module_steps import overrides
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.module.optimization import needs_closure, takes_closure

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.loops.manual_step import ManualStep

__all__ = ["make_step"]


def make_step(context: RunContext) -> TrainStep | ManualStep:
    """Return the object that trains one batch, chosen by the module and the options.

    Raises:
        OptimizationError: several optimizers with automatic optimization, or options that do not
            work with manual optimization or several ranks.
    """
    step = _single_rank_step(context)
    context.rebind_optimizers = step.refresh_optimizers
    if context.processes.is_distributed:
        _connect_ranks(step, context)
    return step


def _single_rank_step(context: RunContext) -> TrainStep | ManualStep:
    """Return the training step of a run, as for a single rank.

    Raises:
        OptimizationError: several optimizers with automatic optimization, or options that do not
            work with manual optimization.
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
    overrides_step = overrides(module, "optimizer_step")
    needs_closures = any(needs_closure(o) for o in context.training.optimization.optimizers)
    if overrides_step or needs_closures:
        if needs_closures and plan.accumulate_grad_batches > 1:
            raise OptimizationError(
                f"Trainer(accumulate_grad_batches={plan.accumulate_grad_batches}) cannot be used "
                "with an optimizer that evaluates the loss itself, such as LBFGS: it would need "
                "all batches of a window again at each evaluation. Use larger batches."
            )
        if context.precision.name == "16-mixed" and not overrides_step:
            raise OptimizationError(
                "Trainer(precision='16-mixed') cannot be used with an optimizer that evaluates the "
                "loss itself, such as LBFGS: its gradients cannot be unscaled. Use bf16-mixed."
            )
        from trainer_hooks.loops.closure_step import ClosureStep

        return ClosureStep(context, _forward_backward_step(context))
    if any(map(takes_closure, context.training.optimization.optimizers)):
        from trainer_hooks.loops.closure_step import ClosureStep, offers_closure

        if offers_closure(context):
            return ClosureStep(context, _forward_backward_step(context))
    return _forward_backward_step(context)


def _forward_backward_step(context: RunContext) -> TrainStep:
    """Return the step that runs a batch, whole or in microbatches."""
    size = context.plan.microbatch_size
    if size is None:
        return TrainStep(context)
    from trainer_hooks.loops.microbatches import AutoMicrobatchStep, MicrobatchStep

    return AutoMicrobatchStep(context) if size == "auto" else MicrobatchStep(context)


def _connect_ranks(step: TrainStep | ManualStep, context: RunContext) -> None:
    """Let a step average its gradients over all ranks.

    Raises:
        OptimizationError: an option does not work with several ranks.
    """
    # imported here, as runs of one rank load none of them, and runs with DDP nothing of FSDP
    from trainer_hooks.loops.manual_step import ManualStep
    from trainer_hooks.runtime.process_group import ProcessGroup

    if context.plan.microbatch_size == "auto":
        raise OptimizationError(
            "Trainer(microbatch_size='auto') cannot be used in several processes: a batch that is "
            "run again where the memory of one is not enough would be out of step with the others. "
            "Pass a number."
        )
    assert isinstance(context.processes, ProcessGroup)
    is_manual = isinstance(step, ManualStep)
    arguments = context.module, step.training_step, context.processes
    if context.processes.is_sharded:
        from trainer_hooks.runtime.fsdp import ShardedGradientSync

        _reject_closures(context)
        step.attach_sync(ShardedGradientSync(*arguments, is_manual=is_manual))
    else:
        from trainer_hooks.runtime.gradient_sync import GradientSync

        step.attach_sync(GradientSync(*arguments, is_manual=is_manual))


def _reject_closures(context: RunContext) -> None:
    """Check that no optimizer of a sharded model needs a closure.

    Raises:
        OptimizationError: one does.
    """
    for optimizer in context.training.optimization.optimizers:
        if needs_closure(optimizer):
            raise OptimizationError(
                f"{type(optimizer).__qualname__} cannot be used with FSDP: it evaluates the loss "
                "itself, and goes by all weights and gradients at once. Use DDP, or another one."
            )
