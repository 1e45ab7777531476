"""The requests on which the loops of a run act."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from trainer_hooks.errors import TerminationSignal

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
