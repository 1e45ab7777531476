"""Let all ranks act on the same requests at the same batch."""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

import torch

from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.process_group import ProcessGroup

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.errors import StopTraining
    from trainer_hooks.loops.duration import DurationLimit
    from trainer_hooks.runtime.fsdp import ShardedGradientSync
    from trainer_hooks.runtime.gradient_sync import GradientSync

_MIN_FROZEN_S = 0.1
"""Shortest time in seconds for which the agreed wall time is reused before a new exchange."""

_FROZEN_PER_EXCHANGE = 100
"""The agreed wall time is reused for at least this many times the duration of its exchange."""

_STOPS, _RAISED, _, _, _VALIDATES, _SAVES, _ENDS, _ = range(8)
_CAN_WAIT = (_STOPS, _RAISED, _VALIDATES, _SAVES, _ENDS)
"""The requests that wait for the next window if they come after a backward."""

_PLACES = {
    "is_stopping": (_STOPS, _RAISED),
    "wants_validation": (_VALIDATES,),
    "wants_checkpoint": (_SAVES,),
    "ends_epoch": (_ENDS,),
}
"""Where each of `RunRequests.made` stands among the numbers that are exchanged."""


class RankConsensus:
    """Share the requests of every rank with one small all-reduce, before any rank acts on them.

    A request by a callback, a signal or the user on one rank is local until then. In an
    accumulation window only one bit is exchanged, in the all-reduce of the gradients: whether any
    rank has a request. If so, the ranks exchange all requests at the end of that window. So a
    request made before the backward of a window's last batch is served at the end of the window,
    and a later one at the end of the next window.

    At the end of an epoch's batches, of a validation and of an epoch the ranks exchange in any
    case. They also agree on the wall time, which does not advance between two exchanges.

    Args:
        context: the run context.
        duration: the limit of `max_duration`.
        sync: averages the gradients over the ranks.
    """

    def __init__(
        self,
        context: RunContext,
        duration: DurationLimit,
        sync: GradientSync | ShardedGradientSync | None,
    ) -> None:
        assert isinstance(context.processes, ProcessGroup)
        self._context = context
        self._processes = context.processes
        self._duration = duration
        self._sync = sync
        self._is_over = self._shares_steps = False
        self._is_first = True
        self._too_new: frozenset[str] = frozenset()
        self._last_sent: list[float] = []
        # as of the window's last backward; None if no flag went with the gradients
        self._at_backward: list[float] | None = None
        self._time_frozen_until = 0.0
        if sync is not None:
            sync.has_request = self.has_request

    @property
    def _checks_every_window(self) -> bool:
        # a limit on samples or tokens is known only after the backward, too late for the flag in
        # the gradients, and must not be exceeded by a window
        return self._duration.is_counted

    def is_over(self) -> bool:
        """Return whether any rank has reached `max_duration`."""
        return self._is_over

    def has_request(self) -> bool:
        """Return whether this rank has a request that the other ranks do not know of."""
        local_requests = self._context.local_requests
        watch = self._context.training.timekeeper.stopwatch
        if self._is_first:
            # only those of a checkpoint which was saved between two backwards
            self._too_new = local_requests.unsent
        local_requests.sent = local_requests.made
        self._at_backward = self._own_requests()
        # only if some code reads the clock: otherwise its time needs no exchange
        if watch.is_read and time.monotonic() > self._time_frozen_until:
            return True
        return self._at_backward != self._last_sent

    def after_window(self) -> None:
        """Exchange requests at the end of an accumulation window, if any rank has one.

        In the first window the ranks always exchange: its forward ran before any request could be
        sent.
        """
        context = self._context
        any_rank_requests = self._sync is None or self._sync.any_rank_requests()
        max_steps, steps = context.plan.max_steps, context.training.progress.steps_completed
        is_last = context.batch.is_last or 0 <= max_steps <= steps
        if any_rank_requests or is_last or self._is_first or self._checks_every_window:
            earlier = None if is_last else self._at_backward
            if self._is_first and earlier is not None and self._waits_for_flag():
                # the uncut run sent them with this window's backward, and got them with the next
                for place in chain(*(_PLACES[name] for name in self._too_new)):
                    earlier[place] = 0
            self._is_first = False
            self.reach(earlier)
        context.training.metrics.shares_steps = self._shares_steps

    def _waits_for_flag(self) -> bool:
        """Return whether restored requests may be too new to be served in the first window."""
        is_delayed = self._sync is not None and self._sync.is_request_delayed
        # in a run that exchanges in each window, no request waits for its flag
        return is_delayed and not self._checks_every_window

    def reach(self, earlier: list[float] | None = None) -> None:
        """Exchange the requests of all ranks, and store the result in the run context.

        Args:
            earlier: this rank's requests as of the backward; those of callbacks and the user that
                are newer are not sent. None sends all.
        """
        context = self._context
        requests, local_requests = context.requests, context.local_requests
        progress, watch = context.training.progress, context.training.timekeeper.stopwatch
        sent, self._at_backward = self._own_requests(), None
        if earlier is not None:
            for place in _CAN_WAIT:
                sent[place] = sent[place] and earlier[place]
        # one maximum serves all entries: flags are 0 or 1, and float64 keeps times and signal
        # numbers exact.
        # After a resume the ranks may disagree about an earlier stop: a callback that requested it
        # may be on rank 0 alone
        is_new = not requests.is_stopping
        wanted = torch.tensor([*sent, is_new, *watch.measure()], dtype=torch.float64)
        started = time.monotonic()
        self._processes.all_reduce_max(wanted, "an agreement on what is asked for")
        now = time.monotonic()
        # so that exchanges of the clock take about 1% of the time at most
        self._time_frozen_until = now + max(_MIN_FROZEN_S, _FROZEN_PER_EXCHANGE * (now - started))
        stops, has_stop_request, over, steps, validates, saves, ends, signum, is_new, *seconds = (
            wanted.tolist()
        )
        if stops and is_new:
            self._share_stop_reason()
        requests.is_stopping = bool(stops)
        requests.stop_requests = max(requests.stop_requests, int(has_stop_request))
        progress.is_validation_requested |= bool(validates)
        progress.is_checkpoint_requested |= bool(saves)
        progress.is_epoch_end_requested |= bool(ends)
        # all ranks have these now, so they must not be sent once more
        local_requests.wants_validation &= not sent[_VALIDATES]
        local_requests.wants_checkpoint &= not sent[_SAVES]
        local_requests.ends_epoch &= not sent[_ENDS]
        if signum:
            requests.pending_signal = requests.agreed_signal = int(signum)
            local_requests.pending_signal = 0
        self._is_over, self._shares_steps = bool(over), bool(steps)
        context.training.metrics.shares_steps = self._shares_steps
        # requests that are served once are cleared by now, so they count as not sent
        self._last_sent = [*sent[:4], 0, 0, 0, 0]
        watch.agreed = (seconds[0], seconds[1])

    def _share_stop_reason(self) -> None:
        """Give the reason of the first rank that asked for a stop to those that did not."""
        state, asks = self._context.state, self._context.local_requests.is_stopping
        # a rank that has withdrawn its request keeps that one's reason
        reasons = self._processes.gather(state.stop_reason if asks else "")
        rank = next((rank for rank, reason in enumerate(reasons) if reason), None)
        if not asks:
            state.stop_reason = "" if rank is None else f"{reasons[rank]} (on rank {rank})"

    def is_last(self, is_last: bool) -> bool:
        """Return whether a batch is the last of the epoch on any rank.

        That costs a reduction only if the length of the loader is unknown.
        """
        # loaders with a length were limited to the shortest of all ranks as they were made
        if not self._context.data.train_stream.looks_ahead:
            return is_last
        return self._processes.reduce_boolean_decision(is_last, all=False)

    def reject_lone_stop(self, request: StopTraining) -> NoReturn:
        """Raise an error in place of a stop that would end this rank alone.

        Raises:
            UsageError: always; the other ranks would wait for this one.
        """
        raise UsageError(
            "StopTraining was raised between the hooks of a run of several processes, where "
            "the others go on. Call trainer.stop() there, or raise it in a hook or a step."
        ) from request

    def _own_requests(self) -> list[float]:
        """Return this rank's requests: four that last, then four that are served once."""
        local_requests = self._context.local_requests
        aggregators = self._context.training.metrics.current_aggregators()
        return [
            local_requests.is_stopping,
            local_requests.stop_requests > 0,
            self._duration.is_over(),
            any(aggregator.is_synced_by_step for aggregator in aggregators),
            local_requests.wants_validation,
            local_requests.wants_checkpoint,
            local_requests.ends_epoch,
            local_requests.pending_signal,
        ]
