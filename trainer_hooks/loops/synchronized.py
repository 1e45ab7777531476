"""The step of several processes: the step of one, whose gradients are averaged over all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.errors import OptimizationError
from trainer_hooks.loops.manual_step import ManualStep
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
    sync = GradientSync(
        context.module,
        step.training_step,
        context.processes,
        is_manual=isinstance(step, ManualStep),
    )
    step.join(sync)
