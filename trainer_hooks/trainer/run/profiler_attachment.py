"""A profiler attached to one run: set up as the run begins, detached as it ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer_hooks._names import ours
from trainer_hooks.profilers import Profiler
from trainer_hooks.profilers.action_monitor import ActionMonitor

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext, Trainer


class ProfilerAttachment:
    """Attach a profiler to a run, until `close`.

    Args:
        profiler: the profiler.
        context: the run.
        trainer: the trainer.
    """

    def __init__(self, profiler: Profiler, context: RunContext, trainer: Trainer) -> None:
        self._profiler, self._context = profiler, context
        assert context.state.fn is not None
        self._stage = context.state.fn
        self._watch = ActionMonitor(profiler)
        if hasattr(profiler, "batches_expected"):
            stage = self._stage
            profiler.batches_expected = lambda: number_of_batches(trainer, stage)
        profiler.setup(
            stage=self._stage,
            local_rank=trainer.local_rank,
            log_dir=trainer.log_dir or trainer.default_root_dir,
        )
        context.hooks.observe(self._watch)
        context.steps.watch = self._watch.as_action

    def attach(self) -> None:
        """Attach the profiler to the module's layers, once they exist."""
        if isinstance(self._profiler, Profiler):  # one of Lightning's finds them by itself
            ours(self._profiler).attach_module(self._context.module)

    def close(self) -> None:
        """Detach the profiler and let it print its report."""
        self._context.hooks.leave(self._watch)
        if isinstance(self._profiler, Profiler):
            # the hooks on the layers would outlive the run, and slow the next one
            ours(self._profiler).attach_module(None)
        try:
            self._profiler.describe()
        finally:
            self._profiler.teardown(stage=self._stage)


def number_of_batches(trainer: Trainer, fn: str) -> float:
    """Return the number of batches of a run, of a fit those that are trained; perhaps infinite."""
    if fn == "fit":
        steps = trainer.max_steps * trainer.accumulate_grad_batches
        epochs = trainer.max_epochs if trainer.max_epochs >= 0 else math.inf
        in_epochs = trainer.num_training_batches * epochs if epochs else 0
        return min(in_epochs, steps if steps >= 0 else math.inf)
    numbers = {
        "validate": trainer.num_val_batches,
        "test": trainer.num_test_batches,
        "predict": trainer.num_predict_batches,
    }
    return sum(numbers.get(fn, ()))
