"""A process that is forked inside a run: a copy of the run, which must leave the run alone.

`os.fork()` in a hook copies the whole stack, with the loops, savers and loggers of the run in it,
but not its threads. If the child's `sys.exit` unwound that stack, it would wait for a thread that
it does not have, finalize the loggers, and end the loader's workers, all of them its parent's.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from weakref import WeakSet

from trainer_hooks._output import flush_output, losing_output
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


class _Relay(Protocol):
    def connect_later(self, members: Callable[[], Any]) -> None: ...


_RUNNING: WeakSet[_Relay] = WeakSet()
"""The relays of the runs that are under way."""


def refuse_in_forks(relay: _Relay) -> None:
    """Let the relay of a run refuse every hook in a process that is forked from now on."""
    _register()
    _RUNNING.add(relay)


def allow_in_forks(relay: _Relay) -> None:
    """Let the relay fire hooks in processes that are forked from now on: its run is over."""
    _RUNNING.discard(relay)


@cache
def _register() -> None:
    # at the first run, not at import; Python has no way to take it back
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=_after_in_child)


def _after_in_child() -> None:
    for relay in _RUNNING:
        relay.connect_later(_refuse)


def _refuse() -> NoReturn:
    raise UsageError(
        f"process {os.getpid()} was forked inside a run, and went on with it: only the process "
        "that called fit trains, logs and saves. End the child in the hook that forked it, with "
        "os._exit(0) or sys.exit()."
    )


def end_process(error: BaseException) -> NoReturn:
    """End this process as Python would after an error that nobody caught; unwind nothing.

    Args:
        error: the error; the exit code is that of a `SystemExit`, and 1 for any other.
    """
    code: Any = 1
    try:
        with losing_output():
            if isinstance(error, SystemExit):
                code = 0 if error.code is None else error.code
                if not isinstance(code, int):
                    print(code, file=sys.stderr)
                    code = 1
            else:
                sys.excepthook(type(error), error, error.__traceback__)
        flush_output()
    finally:
        os._exit(code & 0xFF)
