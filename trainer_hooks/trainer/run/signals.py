"""Signals during a run: heeded between two batches, so that a checkpoint is exact.

SIGINT is Ctrl-C. SIGTERM and SIGUSR1 are what a scheduler sends before it takes the machine away.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trainer_hooks.context import Asked
from trainer_hooks.errors import TerminationSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from trainer_hooks.context import RunContext

__all__ = ["heeding_signals", "shorten_traceback"]


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


def shorten_traceback() -> None:
    """Let Python print a Ctrl-C that was heeded between two batches in one line.

    Nobody looks for a fault there, and its frames are the package's. All other errors, and a second
    Ctrl-C, which shows where something hangs, are printed as before.
    """
    if not isinstance(sys.excepthook, _InOneLine):
        sys.excepthook = _InOneLine(sys.excepthook)


class _InOneLine:
    """What prints the error that ends the program.

    Args:
        before: what printed it until now.
    """

    def __init__(self, before: Callable[..., object]) -> None:
        self._before = before

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        is_told = kind is KeyboardInterrupt and not hasattr(error, "__notes__")
        if is_told and _is_from(Asked.heed_signal, traceback):
            print(kind.__name__, file=sys.stderr)
        else:
            self._before(kind, error, traceback)


def _is_from(function: Callable[..., object], traceback: TracebackType | None) -> bool:
    """Return whether an error was raised in a function."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code is function.__code__
