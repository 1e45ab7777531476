"""Batches whose `training_step` returned no loss: told once, and no epoch may have nothing else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.errors import ModuleError, TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["MissingLosses"]

_PATIENCE = 1000
"""Batches without a loss that a loader without an end may begin with."""


class MissingLosses:
    """Note the batches of an epoch that had no loss; only these cost anything.

    Args:
        context: the run, which optimizes automatically.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._step = f"{type(context.module).__qualname__}.training_step"
        self._is_told = False
        self._last = (-1, -1)
        self._count = 0

    def note(self, batch_idx: int) -> None:
        """Note that a batch, or a part of it, had none.

        Raises:
            ModuleError: there is no end of them.
        """
        context = self._context
        if not context.training.optimization.optimizers:
            return  # nothing is learned in any case
        progress = context.training.progress
        if not self._is_told:
            self._is_told = True
            warn(
                f"{self._step} returned None in epoch {progress.epochs_completed}, batch "
                f"{batch_idx}: such a batch is skipped, and nothing is learned from it. Return the "
                "loss, unless that is meant.",
                TrainerHooksWarning,
            )
        place = (progress.epochs_completed, batch_idx)
        if place == self._last:
            return
        if place[0] != self._last[0]:
            self._count = 0
        self._last = place
        self._count += 1
        if self._count >= _PATIENCE and self._is_endless:
            self.require_one(batch_idx + 1)

    def require_one(self, batches: int) -> None:
        """Make sure that one of the epoch's first `batches` had a loss.

        Raises:
            ModuleError: none had.
        """
        epoch = self._context.training.progress.epochs_completed
        is_all = self._last[0] == epoch and self._count >= batches
        if is_all and not self._context.asked.is_stopping:
            raise ModuleError(
                f"{self._step} returned None for each of {batches} batches of epoch "
                f"{epoch}: nothing can be learned without a loss. Write `return loss` at "
                "its end, or set self.automatic_optimization = False in __init__ to optimize by "
                "yourself."
            )

    @property
    def _is_endless(self) -> bool:
        stream = self._context.data.stream
        return stream is not None and stream.num_batches == math.inf
