"""What one of several processes asks is known to all before any of them acts on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trainer_hooks.runtime import ProcessGroup

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.duration import Duration

__all__ = ["Agreement"]


class Agreement:
    """Agree, with one small reduction, on all that any process asks for.

    It is reached at the end of each window, of each validation and of each epoch. What callbacks,
    signals and users ask of one process in between is a wish until then. The wall time that the
    processes go by is agreed on, too: between two agreements it stands still.

    Args:
        context: the run.
        duration: what `max_duration` is measured by, or None.
    """

    def __init__(self, context: RunContext, duration: Duration | None) -> None:
        assert isinstance(context.processes, ProcessGroup)
        self._context = context
        self._processes = context.processes
        self._duration = duration
        self._is_over = False
        assert context.data.stream is not None
        self._is_length_known = context.data.stream.num_batches != math.inf

    def is_over(self) -> bool:
        """Return whether as much was trained as `max_duration` says, in any process."""
        return self._is_over

    def reach(self) -> None:
        """Let all processes know what any of them wishes."""
        context, wishes, asked = self._context, self._context.wishes, self._context.asked
        progress, watch = context.training.progress, context.training.timekeeper.stopwatch
        metrics = context.training.metrics
        is_over = self._duration is not None and self._duration.is_over()
        wanted = torch.tensor(
            [
                wishes.is_stopping, wishes.stop_requests > 0, wishes.wants_validation,
                wishes.wants_checkpoint, wishes.ends_epoch, wishes.pending_signal, is_over,
                any(slot.is_synced_by_step for slot in metrics.slots_in_use()), *watch.measure(),
            ],
            dtype=torch.float64,
        )  # fmt: skip
        self._processes.highest(wanted, "an agreement on what is asked for")
        stops, requests, validates, saves, ends, signum, over, steps, *seconds = wanted.tolist()
        asked.is_stopping, asked.stop_requests = (
            bool(stops),
            max(asked.stop_requests, int(requests)),
        )
        progress.is_validation_requested |= bool(validates)
        progress.is_checkpoint_requested |= bool(saves)
        asked.ends_epoch |= bool(ends)
        wishes.wants_validation = wishes.wants_checkpoint = wishes.ends_epoch = False
        if signum:
            asked.pending_signal = asked.agreed_signal = int(signum)
            wishes.pending_signal = 0
        self._is_over = bool(over)
        metrics.shares_steps = bool(steps)
        watch.agreed = (seconds[0], seconds[1])

    def is_last(self, is_last: bool) -> bool:
        """Return whether a batch is the epoch's last for any process.

        Where all know how many batches they have that is settled; else it costs a reduction.
        """
        if self._is_length_known:
            return is_last
        return self._processes.reduce_boolean_decision(is_last, all=False)
