"""Iterations: cycles of `iteration_length` epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.requests import CheckpointRequests

__all__ = ["Iterations"]


class Iterations:
    """Open and close the cycles that a fit's epochs belong to; nothing without a length.

    Args:
        context: the run.
        requests: is served in the slot after a cycle.
    """

    def __init__(self, context: RunContext, requests: CheckpointRequests) -> None:
        self._context = context
        self._requests = requests
        self._length = context.plan.iteration_length
        self._cycle = context.cycle
        if self._cycle.is_open is None:
            # an older file does not say: a run that is resumed inside a cycle is in it
            progress, length = context.training.progress, self._length or 1
            self._cycle.is_open = (
                progress.stage is not EpochStage.BETWEEN or progress.epochs_completed % length != 0
            )

    def before_epoch(self) -> None:
        """Open a cycle, unless the epoch that begins is inside of one."""
        context = self._context
        if self._length is not None and not self._cycle.is_open:
            self._cycle.is_open = True
            context.training.timekeeper.begin_iteration(context.training.progress)
            context.hooks.on_iteration_start(context.trainer, context.module)

    def after_epoch(self) -> None:
        """Close the cycle if the epoch just counted was its last."""
        if (
            self._length is not None
            and self._context.training.progress.epochs_completed % self._length == 0
        ):
            self.close()

    def close(self) -> None:
        """Close the cycle that is open, as at the end of a fit."""
        context = self._context
        if self._length is None or not self._cycle.is_open:
            return
        self._cycle.is_open = False
        context.hooks.on_iteration_end(context.trainer, context.module)
        context.hooks.on_iteration_checkpoint(context.trainer, context.module)
        if context.training.progress.is_checkpoint_requested:
            self._requests.save()
