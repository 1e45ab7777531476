"""Signals during a run: heeded between two batches, so that a checkpoint is exact.

SIGINT is Ctrl-C. SIGTERM and SIGUSR1 are what a scheduler sends before it takes the machine away.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import TerminationSignal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.context import RunContext

__all__ = ["heeding_signals"]


@contextmanager
def heeding_signals(context: RunContext) -> Iterator[None]:
    """Hold signals back until the batch in work is done; a second one acts at once.

    The handlers that were there before are put back. One that is not Python's own was installed or
    set to be ignored on purpose, and stays. In a thread other than the main one nothing is done,
    since Python allows it only there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    owner = os.getpid()

    def handle(signum: int, frame: Any) -> None:  # noqa: ARG001 - the interface of a handler
        if os.getpid() != owner:
            # Ctrl-C reaches forked children too: they serve the batch in work until told to end
            if signum == signal.SIGTERM:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)
            return
        if context.wishes.pending_signal or context.asked.is_leaving:
            context.wishes.pending_signal, context.asked.is_leaving = 0, False
            _act_on(signum)
        context.wishes.pending_signal = signum
        name = signal.Signals(signum).name
        # not print or logging: their locks may be held by what this interrupts
        with suppress(OSError):
            os.write(2, f"\n{name}: stopping after this batch; once more stops at once\n".encode())

    own = (signal.SIG_DFL, signal.default_int_handler)
    before = {
        signum: signal.signal(signum, handle)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        if signal.getsignal(signum) in own
    }
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if context.wishes.pending_signal:
        # it came after the last batch: the run is over, but its wish is not forgotten
        context.wishes.heed_signal()


def _act_on(signum: int) -> None:
    if signum == signal.SIGINT:
        raise KeyboardInterrupt
    raise TerminationSignal(signum)
