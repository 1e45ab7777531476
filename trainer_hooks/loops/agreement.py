"""What one of several processes asks is known to all before any of them acts on it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NoReturn

import torch

from trainer_hooks.errors import UsageError
from trainer_hooks.runtime import ProcessGroup

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.errors import StopTraining
    from trainer_hooks.loops.duration import Duration
    from trainer_hooks.runtime import GradientSync, ShardedSync

__all__ = ["Agreement"]

_TIME_STANDS_S = 0.1
"""Seconds for which the wall time that the processes go by may stand still, if anybody reads it."""

_SHARE = 100
"""How many times as long as its own exchange has taken it stands still at least."""


class Agreement:
    """Agree, with one small reduction, on all that any process asks for.

    What callbacks, signals and users ask of one process is a wish until then. In a window only one
    bit is exchanged, which rides on the gradients: whether any process has a wish. If so, all agree
    at the end of that window. So what is asked before the backward of a window's last batch is done
    at the window's end, and what is asked after it at the end of the next one.

    At the end of an epoch's batches, of a validation and of an epoch they agree in any case. The
    wall time that they go by is agreed on, too: between two agreements it stands still.

    Args:
        context: the run.
        duration: what `max_duration` is measured by, or None.
        sync: what averages the gradients.
    """

    def __init__(
        self,
        context: RunContext,
        duration: Duration | None,
        sync: GradientSync | ShardedSync | None,
    ) -> None:
        assert isinstance(context.processes, ProcessGroup)
        self._context = context
        self._processes = context.processes
        self._duration = duration
        self._sync = sync
        self._is_over = self._shares_steps = False
        # samples are counted after the backward, and none is to be trained too many
        self._is_exact = duration is not None and duration.is_counted
        self._is_first = True
        self._settled: list[float] = []
        self._time_stands_until = 0.0
        self._is_length_known = context.data.training.num_batches != math.inf
        if sync is not None:
            sync.has_wish = self.has_wish

    def is_over(self) -> bool:
        """Return whether as much was trained as `max_duration` says, in any process."""
        return self._is_over

    def has_wish(self) -> bool:
        """Return whether this process has anything to tell that the others do not know."""
        watch = self._context.training.timekeeper.stopwatch
        if watch.is_read and time.monotonic() > self._time_stands_until:
            return True
        return self._wishes() != self._settled

    def after_window(self) -> None:
        """Agree at the end of a window, if any process has a wish.

        In the first window they agree in any case: no hook has been called in it before.
        """
        context = self._context
        is_wished = self._sync is None or self._sync.is_wished()
        max_steps, steps = context.plan.max_steps, context.training.progress.steps_completed
        is_last = context.batch.is_last or 0 <= max_steps <= steps
        if is_wished or is_last or self._is_first or self._is_exact:
            self._is_first = False
            self.reach()
        context.training.metrics.shares_steps = self._shares_steps

    def reach(self) -> None:
        """Let all processes know what any of them wishes."""
        context, wishes, asked = self._context, self._context.wishes, self._context.asked
        progress, watch = context.training.progress, context.training.timekeeper.stopwatch
        sent = self._wishes()
        wanted = torch.tensor([*sent, *watch.measure()], dtype=torch.float64)
        begun = time.monotonic()
        self._processes.highest(wanted, "an agreement on what is asked for")
        now = time.monotonic()
        self._time_stands_until = now + max(_TIME_STANDS_S, _SHARE * (now - begun))
        stops, requests, over, steps, validates, saves, ends, signum, *seconds = wanted.tolist()
        asked.is_stopping, asked.stop_requests = (
            bool(stops),
            max(asked.stop_requests, int(requests)),
        )
        progress.is_validation_requested |= bool(validates)
        progress.is_checkpoint_requested |= bool(saves)
        progress.is_epoch_end_requested |= bool(ends)
        wishes.wants_validation = wishes.wants_checkpoint = wishes.ends_epoch = False
        if signum:
            asked.pending_signal = asked.agreed_signal = int(signum)
            wishes.pending_signal = 0
        self._is_over, self._shares_steps = bool(over), bool(steps)
        context.training.metrics.shares_steps = self._shares_steps
        self._settled = [*sent[:4], 0, 0, 0, 0]  # what is asked once is done with
        watch.agreed = (seconds[0], seconds[1])

    def is_last(self, is_last: bool) -> bool:
        """Return whether a batch is the epoch's last for any process.

        Where all know how many batches they have that is settled; else it costs a reduction.
        """
        if self._is_length_known:
            return is_last
        return self._processes.reduce_boolean_decision(is_last, all=False)

    def refuse_alone(self, request: StopTraining) -> NoReturn:
        """Make sure that this process does not end where the others would wait for it.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "StopTraining was raised between the hooks of a run of several processes, where "
            "the others go on. Call trainer.stop() there, or raise it in a hook or a step."
        ) from request

    def _wishes(self) -> list[float]:
        """Return what this process asks for: first what lasts, then what is asked once."""
        wishes, slots = self._context.wishes, self._context.training.metrics.slots_in_use()
        return [
            wishes.is_stopping,
            wishes.stop_requests > 0,
            self._duration is not None and self._duration.is_over(),
            any(slot.is_synced_by_step for slot in slots),
            wishes.wants_validation,
            wishes.wants_checkpoint,
            wishes.ends_epoch,
            wishes.pending_signal,
        ]
