"""Signals that reach a rank while it waits for others."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from trainer_hooks.runtime.rank_watchdog import SignalInbox

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture
def inbox():
    """An open inbox, with handlers that mark what came as handled if `handles` is set."""
    made = SignalInbox(SIGNALS)
    made.handles = True
    handlers = {
        number: signal.signal(number, lambda *_: made.handles and made.mark_handled())
        for number in (*SIGNALS, signal.SIGUSR2)
    }
    with made.opened():
        yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_handled_signal_is_not_stuck(inbox):
    """However many come."""
    assert not inbox.has_any()
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGTERM)
    assert inbox.has_any()
    assert inbox.name == "SIGTERM"
    assert [inbox.is_second_stuck() for _ in range(3)] == [False] * 3


def test_a_second_signal_without_a_handler_call_is_stuck(inbox):
    """At the second look, as a handler may be about to be called at the first."""
    inbox.handles = False
    os.kill(os.getpid(), signal.SIGTERM)
    assert inbox.has_any()
    assert not inbox.is_second_stuck()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert inbox.has_any()
    assert [inbox.is_second_stuck() for _ in range(2)] == [False, True]


def test_other_signals_are_ignored(inbox):
    """Those that the run does not defer."""
    os.kill(os.getpid(), signal.SIGUSR2)
    assert not inbox.has_any()


def test_signals_of_forked_processes_do_not_come(inbox):
    """A loader's workers get Ctrl-C too; their parent's inbox must not count it."""
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not inbox.has_any()


def test_the_pipe_of_an_event_loop_is_left():
    """The inbox then gets nothing, and gives the loop's pipe back."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        with SignalInbox(SIGNALS).opened():
            assert signal.set_wakeup_fd(writing) == writing
        assert signal.set_wakeup_fd(writing) == writing
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def test_a_closed_inbox_has_no_pipe():
    """The watchdog's thread may look once more as the run ends."""
    made = SignalInbox(SIGNALS)
    with made.opened():
        looks = threading.Thread(target=made.has_any)
        looks.start()
        looks.join()
    assert signal.set_wakeup_fd(-1) == -1
    assert not made.has_any()
