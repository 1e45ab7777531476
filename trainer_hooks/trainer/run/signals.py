"""Signals during a run: deferred until the batch is done, so that a checkpoint is exact.

SIGINT is Ctrl-C. SIGTERM and SIGUSR1 are what a scheduler sends before it takes the machine away.
While a run is set up there is no batch to wait for: then they raise at once, as Ctrl-C does.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import is_own_module
from trainer_hooks._output import losing_output
from trainer_hooks.errors import TerminationSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.runtime.processes import Processes

_ENDING = tuple(
    number
    # SIGUSR1 is of POSIX, and SIGBREAK is Ctrl-Break on Windows
    for name in ("SIGTERM", "SIGUSR1", "SIGBREAK")
    if (number := getattr(signal, name, None)) is not None
)

_DEFERRED = (signal.SIGINT, *_ENDING)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Raise TerminationSignal at SIGTERM and SIGUSR1 in the context, where Python would die.

    A run that is set up is so torn down. A handler that is not Python's own stays. Outside of the
    main thread nothing is done, since Python sets handlers only there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _RaisingHandler()
    # a rank that was forked inherits the handler of its parent, which here would kill
    replaced = [signum for signum in _ENDING if _is_default(signal.getsignal(signum))]
    for signum in replaced:
        signal.signal(signum, handler)
    try:
        yield
    finally:
        for signum in replaced:
            # an own loop is open when its set-up ends, and has the handler that defers
            if signal.getsignal(signum) is handler:
                signal.signal(signum, signal.SIG_DFL)


def receiving_signals(processes: Processes) -> AbstractContextManager[None]:
    """Return a context in which a rank's watchdog knows of signals that would end its set-up.

    While a rank waits for the others, no handler of Python is called.
    """
    # those that the program handles itself are its own affair; in another thread there are none
    taken = [signum for signum in _ENDING if isinstance(signal.getsignal(signum), _RaisingHandler)]
    is_main = threading.current_thread() is threading.main_thread()
    inbox = processes.signal_inbox(taken) if is_main and taken else None
    return nullcontext() if inbox is None else inbox.opened()


class _RaisingHandler:
    """A handler of signals that raises `TerminationSignal` in the process that made it."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that installed the handler."""
        return os.getpid() != self._owner

    def __call__(self, signum: int, frame: object) -> None:  # noqa: ARG002 - the interface of a handler
        if self.is_inherited:
            _die_of(signum)
        else:
            _tell(f"{signal.Signals(signum).name}: stopping, before the first batch")
            raise TerminationSignal(signum)


def _is_default(handler: object) -> bool:
    """Return whether a handler of SIGTERM or SIGUSR1 is the default, or one inherited by a fork."""
    if isinstance(handler, _RaisingHandler):
        return handler.is_inherited
    return handler is signal.SIG_DFL


def _tell(line: str) -> None:
    """Write a line to stderr from a handler."""
    # not print or logging: the interrupted code may hold their locks
    with suppress(OSError):
        os.write(2, f"\n{line}\n".encode())


def _die_of(signum: int) -> None:
    """Let a signal have its default effect on this process."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _python_handler(signum: int) -> Any:
    """Return Python's own handler of a signal; None if another was installed on purpose."""
    handler = signal.getsignal(signum)
    if isinstance(handler, _RaisingHandler):
        return signal.SIG_DFL  # which that one has replaced
    return handler if handler in (signal.SIG_DFL, signal.default_int_handler) else None


@contextmanager
def deferring_signals(context: RunContext) -> Iterator[None]:
    """Defer signals until the current batch is done; a second signal acts at once.

    The previous handlers are restored at the end. A handler other than Python's own was installed
    on purpose and stays in place. Outside of the main thread nothing is done, since Python sets
    handlers only there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    owner = os.getpid()
    before = {signum: _python_handler(signum) for signum in _DEFERRED}
    before = {signum: handler for signum, handler in before.items() if handler is not None}
    # in a collective the handler is not called, so the watchdog of several ranks must know, too
    inbox = context.processes.signal_inbox(before)

    def handle(signum: int, frame: Any) -> None:  # noqa: ARG001 - the interface of a handler
        if os.getpid() != owner:
            # the terminal sends Ctrl-C to loader workers too, which must still serve the batch;
            # SIGTERM however is meant for the worker itself
            if signum == signal.SIGTERM:
                _die_of(signum)
            return
        if inbox is not None:
            inbox.mark_handled()
        # a second one: the first is waiting for the batch, or its exception is on its way out
        if context.local_requests.pending_signal or context.requests.is_leaving:
            context.local_requests.pending_signal, context.requests.is_leaving = 0, False
            if signum == signal.SIGINT:
                raise KeyboardInterrupt
            raise TerminationSignal(signum)
        context.local_requests.pending_signal = signum
        name = signal.Signals(signum).name
        moment = "when the run is torn down" if context.state.status.stopped else "after this batch"
        _tell(f"{name}: stopping {moment}; once more stops at once")

    for signum in before:
        signal.signal(signum, handle)
    try:
        with nullcontext() if inbox is None else inbox.opened():
            yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if context.local_requests.pending_signal:
        # it came after the last batch, when no loop served it any more
        context.local_requests.raise_pending_signal()


def shorten_traceback() -> None:
    """Make Python print a Ctrl-C that was deferred to a batch's end, or came in an import.

    It is one line: its frames are the package's and show no fault. All other errors, and a second
    Ctrl-C, which shows where a program hangs, are printed as before.
    """
    if not isinstance(sys.excepthook, _InOneLine):
        sys.excepthook = hook = _InOneLine(sys.excepthook)
        atexit.register(hook.keep_exit_code)


class _InOneLine:
    """An excepthook that prints an orderly Ctrl-C in one line.

    Args:
        before: the previous excepthook.
    """

    def __init__(self, before: Callable[..., object]) -> None:
        self._before = before
        self._is_interrupted = False

    def keep_exit_code(self) -> None:
        """Let a process that Ctrl-C ends die of SIGINT, so that a shell's loop ends as well.

        The interpreter notes the error for that, and forgets it when any text is executed: torch
        imports a module at exit, whose named tuples do so.
        """
        if self._is_interrupted:
            if "torch._dynamo" in sys.modules:
                with suppress(ImportError):
                    import_module("tabulate")  # torch's handler may come after this one
            with suppress(KeyboardInterrupt):
                exec("raise KeyboardInterrupt")  # noted as an error of the program itself

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        # here: a Trainer needs this file's handlers from its first line on, and no more
        from trainer_hooks.context.requests import RunRequests

        # after an error at a prompt the process goes on
        self._is_interrupted = kind is KeyboardInterrupt and not hasattr(sys, "ps1")
        # notes tell of further errors, for which one line is not enough
        is_told = kind is KeyboardInterrupt and not hasattr(error, "__notes__")
        if is_told and (
            _is_from(RunRequests.raise_pending_signal, traceback) or _is_in_import(traceback)
        ):
            with losing_output():
                print(kind.__name__, file=sys.stderr)
        else:
            self._before(kind, error, traceback)


def _is_from(function: Callable[..., object], traceback: TracebackType | None) -> bool:
    """Return whether an error was raised in a function."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code is function.__code__


def _is_in_import(traceback: TracebackType | None) -> bool:
    """Return whether an error was raised in an import that a function of the package makes."""
    is_import = False
    while traceback is not None:
        code, module = traceback.tb_frame.f_code, traceback.tb_frame.f_globals.get("__name__", "")
        if code.co_filename.startswith("<frozen importlib"):
            is_import = True
        elif is_own_module(module) and code.co_name != "<module>":
            is_import = False
        traceback = traceback.tb_next
    return is_import
