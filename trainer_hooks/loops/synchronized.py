"""The step of several processes: the step of one, whose gradients are averaged over all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.errors import OptimizationError
from trainer_hooks.loops.manual_step import ManualStep
from trainer_hooks.module import needs_closure
from trainer_hooks.runtime import GradientSync, ProcessGroup

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.train_step import TrainStep

__all__ = ["synchronize"]


def synchronize(step: TrainStep | ManualStep, context: RunContext) -> None:
    """Let a step take part in what all processes do.

    Raises:
        OptimizationError: an option cannot be right in several processes.
    """
    if context.plan.microbatch_size == "auto":
        raise OptimizationError(
            "Trainer(microbatch_size='auto') cannot be used in several processes: a batch that is "
            "run again where the memory of one is not enough would be out of step with the others. "
            "Pass a number."
        )
    assert isinstance(context.processes, ProcessGroup)
    is_manual = isinstance(step, ManualStep)
    arguments = context.module, step.training_step, context.processes
    if not context.processes.is_sharded:
        step.join(GradientSync(*arguments, is_manual=is_manual))
        return
    from trainer_hooks.runtime import ShardedSync

    _require_other_than_closures(context)
    step.join(ShardedSync(*arguments, is_manual=is_manual))


def _require_other_than_closures(context: RunContext) -> None:
    """Make sure that all optimizers can do with shards of the weights."""
    for optimizer in context.training.optimization.optimizers:
        if needs_closure(optimizer):
            raise OptimizationError(
                f"{type(optimizer).__qualname__} cannot be used with FSDP: it evaluates the loss "
                "itself, and goes by all weights and gradients at once. Use DDP, or another one."
            )
