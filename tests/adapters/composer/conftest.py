"""What the tests with Composer stand on."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True)
def _signal_handlers():
    """Restore the handlers that the import of Composer replaces, for the tests that come later."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
