"""A run with a profiler: put in as it begins, taken out and heard as it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.profilers import Profiler
from trainer_hooks.profilers.watching import Watch

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext, Trainer

__all__ = ["Profiled"]


class Profiled:
    """Let a profiler look on at a run, until `close`.

    Args:
        profiler: what measures.
        context: the run.
        trainer: whose run it is.
    """

    def __init__(self, profiler: Profiler, context: RunContext, trainer: Trainer) -> None:
        self._profiler, self._context = profiler, context
        self._stage = str(context.state.fn)
        self._watch = Watch(profiler)
        profiler.setup(
            stage=self._stage,
            local_rank=trainer.local_rank,
            log_dir=trainer.log_dir or trainer.default_root_dir,
        )
        context.hooks.observe(self._watch)
        context.steps.watch = self._watch.step

    def attach(self) -> None:
        """Show it the layers, once they are there."""
        if isinstance(self._profiler, Profiler):  # one of Lightning's finds them by itself
            self._profiler.attach_module(self._context.module)

    def close(self) -> None:
        """Let it tell what it found."""
        self._context.hooks.leave(self._watch)
        if isinstance(self._profiler, Profiler):
            self._profiler.attach_module(None)
        try:
            self._profiler.describe()
        finally:
            self._profiler.teardown(stage=self._stage)
