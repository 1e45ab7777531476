"""The requests on which the loops of a run act, and those that a checkpoint holds."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.errors import TerminationSignal

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext

REQUESTED = {
    "wants_validation": "is_validation_requested",
    "wants_checkpoint": "is_checkpoint_requested",
    "ends_epoch": "is_epoch_end_requested",
}
"""Requests of one rank, with the counter that holds them once the ranks have agreed."""

REQUESTS_OF_A_RANK = ("is_stopping", *REQUESTED)
"""The requests on which the ranks agree at the end of an accumulation window."""


@dataclass(slots=True)
class RunRequests:
    """The requests of callbacks, the user and signals, on which the loops act between two batches.

    Attributes:
        is_stopping: whether a stop of the run was requested.
        stop_requests: number of `StopTraining` errors that were raised.
        stop_message: message of the first of them.
        stoppers: the state keys of the callbacks that requested a stop, each once; empty for what
            is no callback.
        sent: the names of the requests that the last backward could send to the other ranks; later
            ones are sent with the next backward. None before the first backward.
        skips_batch: whether the rest of the current batch is to be skipped.
        records_indices: whether the sample indices of prediction batches are to be recorded.
        pending_signal: number of a signal to act on at the next batch, or 0.
        agreed_signal: number of a signal on which all ranks act together, or 0.
        is_leaving: whether a signal was acted on, so that a second one ends the run at once.
        wants_validation: whether a validation was requested that not all ranks know of yet.
        wants_checkpoint: whether a checkpoint was requested that not all ranks know of yet.
        ends_epoch: whether the end of the epoch was requested that not all ranks know of yet.
        serving: the state key of the saver that serves a requested checkpoint, or an empty string.
    """

    is_stopping: bool = False
    stop_requests: int = 0
    stop_message: str = ""
    stoppers: list[str] = field(default_factory=list)
    sent: frozenset[str] | None = None
    skips_batch: bool = False
    records_indices: bool = False
    pending_signal: int = 0
    agreed_signal: int = 0
    is_leaving: bool = False
    wants_validation: bool = False
    wants_checkpoint: bool = False
    ends_epoch: bool = False
    serving: str = ""

    @property
    def made(self) -> frozenset[str]:
        """The names of the requests that wait for the ranks' agreement."""
        return frozenset(name for name in REQUESTS_OF_A_RANK if getattr(self, name))

    @property
    def unsent(self) -> frozenset[str]:
        """The names of those that came after the last backward."""
        return frozenset() if self.sent is None else self.made - self.sent

    def raise_pending_signal(self) -> None:
        """Raise the exception of a signal that came since the last batch, if one did.

        Raises:
            KeyboardInterrupt: it was SIGINT.
            TerminationSignal: it was another one.
        """
        # cleared first, so that no later check raises for the same signal again
        signum, self.pending_signal = self.pending_signal, 0
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        if signum:
            self.is_leaving = True
            raise TerminationSignal(signum, is_in_order=True)


class SavedRequests:
    """The requests of a running fit as a checkpoint holds them, and their restoring.

    Args:
        context: the run's context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def stop(self) -> dict[str, Any] | None:
        """Return the request for a stop that the run has yet to follow; None if there is none."""
        return self._request_state() if _is_requested(self._context.requests) else None

    def own_stop(self) -> dict[str, Any] | None:
        """Return this rank's request for a stop that the ranks have yet to agree on, or None."""
        context, local = self._context, self._context.local_requests
        if _is_requested(context.requests) or not _is_requested(local):
            return None
        return {**self._request_state(), "is_sent": "is_stopping" not in local.unsent}

    def own_requests(self) -> dict[str, bool] | None:
        """Return this rank's other requests that the ranks have yet to agree on, or None.

        Each has its name, and whether the last backward has sent it to the other ranks.
        """
        local = self._context.local_requests
        if local is self._context.requests:  # one rank: its counters hold them
            return None
        return {name: name not in local.unsent for name in local.made - {"is_stopping"}} or None

    def load_stop(self, state: dict[str, Any]) -> None:
        """Request the stop again that a checkpoint holds, unless the run is to go on beyond it.

        It goes on if it has other limits, or if the callbacks that requested the stop take no part
        any more or decide about it themselves.
        """
        self._request_again(state, self._context.requests, self._context.local_requests)

    def load_own_stop(self, state: dict[str, Any]) -> None:
        """Do the same for this rank's request, on which the ranks have yet to agree."""
        self._request_again(state, self._context.local_requests)
        self._note_sent("is_stopping", state["is_sent"])

    def load_own_requests(self, state: dict[str, bool]) -> None:
        """Make this rank's other requests again, on which the ranks have yet to agree."""
        context = self._context
        for name, is_sent in state.items():
            if context.local_requests is not context.requests:
                setattr(context.local_requests, name, True)
                self._note_sent(name, is_sent)
            else:  # one rank goes on with the checkpoint of several
                setattr(context.training.progress, REQUESTED[name], True)

    def _note_sent(self, name: str, is_sent: bool) -> None:
        """Note of a restored request whether the last backward had sent it."""
        local = self._context.local_requests
        local.sent = (local.sent or frozenset()) | ({name} if is_sent else set())

    def _request_state(self) -> dict[str, Any]:
        context = self._context
        requests, local = context.requests, context.local_requests
        # empty if another rank alone requested it
        stoppers = list(local.stoppers) or [""]
        renewing = {c.state_key for c in context.connector.callbacks if ours(c).renews_stop}
        return {
            # callbacks that renew their request give their reason anew
            "reason": "" if renewing.issuperset(stoppers) else context.trainer.stop_reason,
            "stoppers": stoppers,
            "is_raised": bool(requests.stop_requests or local.stop_requests),
            "limits": self._limits(),
        }

    def _request_again(self, state: dict[str, Any], *places: RunRequests) -> None:
        callbacks = self._context.connector.callbacks
        deciding = {c.state_key: not ours(c).renews_stop for c in callbacks}
        # an empty key is that of the module, or of code outside of all hooks
        stoppers = [key for key in state["stoppers"] if deciding.get(key, not key)]
        if not stoppers or state["limits"] != self._limits():
            return
        self._context.trainer.stop(state["reason"])
        for requests in places:
            requests.is_stopping, requests.stoppers = True, stoppers
            requests.stop_requests = int(state["is_raised"])

    def _limits(self) -> dict[str, Any]:
        plan = self._context.plan
        duration = None if plan.max_duration is None else str(plan.max_duration)
        return {
            "max_epochs": plan.max_epochs,
            "max_steps": plan.max_steps,
            "max_duration": duration,
        }


def _is_requested(requests: RunRequests) -> bool:
    """Return whether a stop is among these requests."""
    return requests.is_stopping or requests.stop_requests > 0
