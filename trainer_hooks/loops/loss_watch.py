"""Tell once of a training loss that is no number, where it can be read without waiting for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["LossWatch"]

_GUARDS = frozenset({"NaNGuard", "NaNMonitor", "TerminateOnNaNCallback"})
"""Callbacks that look themselves, and the names of classes that others derive from."""


class LossWatch:
    """Look at losses where the device is waited for in any case, and at the last of an epoch.

    Args:
        context: the run.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._is_told = False

    def look(self, outputs: dict[str, Any]) -> None:
        """Look at the loss of a batch, if hooks were given one."""
        loss = outputs.get("loss")
        if self._is_told or self._context.asked.is_stopping:
            return  # somebody has heeded it, as the search for a learning rate does
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            return
        value = float(loss)
        if math.isfinite(value) or (
            # such a step is left out by the scaler, which learns from it
            not math.isnan(value) and self._context.precision.name == "16-mixed"
        ):
            return
        self._is_told = True
        if self._is_guarded():
            return
        progress = self._context.training.progress
        warn(
            f"the training loss is {value} in epoch {progress.epochs_completed}, at optimizer step "
            f"{progress.steps_completed}: the training goes on, and the weights hardly recover. "
            "Lower the learning rate, or add the callback NaNGuard(), which stops at such a step, "
            "skips it or goes back.",
            TrainerHooksWarning,
        )

    def _is_guarded(self) -> bool:
        callbacks = self._context.connector.callbacks
        return any(kind.__name__ in _GUARDS for one in callbacks for kind in type(one).__mro__)
