"""Asked: what was asked of a run while it goes on."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from trainer_hooks.errors import TerminationSignal

__all__ = ["Asked"]


@dataclass(slots=True)
class Asked:
    """What callbacks, users and signals asked of a run; the loops heed it between two batches.

    Attributes:
        is_stopping: whether somebody asked the run to stop.
        stop_requests: how often `StopTraining` was raised.
        stop_message: what the first of them said.
        skips_batch: whether somebody asked to leave the batch in work out.
        notes_indices: whether somebody asked which samples the batches of a prediction consist of.
        pending_signal: the number of a signal to heed at the next batch, or 0.
        agreed_signal: the number of one that all of several processes heed together, or 0.
        is_leaving: whether one was heeded, so that another does not wait for anything.
        wants_validation: whether a validation was asked for that not all processes know of yet.
        wants_checkpoint: likewise, a checkpoint.
        ends_epoch: likewise, the end of the epoch's batches.
    """

    is_stopping: bool = False
    stop_requests: int = 0
    stop_message: str = ""
    skips_batch: bool = False
    notes_indices: bool = False
    pending_signal: int = 0
    agreed_signal: int = 0
    is_leaving: bool = False
    wants_validation: bool = False
    wants_checkpoint: bool = False
    ends_epoch: bool = False

    def heed_signal(self) -> None:
        """Raise what a signal that came since the last batch stands for."""
        signum, self.pending_signal = self.pending_signal, 0
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        if signum:
            self.is_leaving = True
            raise TerminationSignal(signum, is_in_order=True)
