"""A timer that can be stopped and started again."""

from __future__ import annotations

import time

from trainer_hooks.clock.pausable_timer import PausableTimer


def test_a_stopwatch_counts_while_it_runs(monkeypatch):
    """Time that passes while it stands still does not count."""
    now = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = PausableTimer(5.0)
    now[0] = 20.0
    watch.start()
    now[0] = 21.0
    watch.start()
    now[0] = 22.0
    assert watch.elapsed == 7.0
    watch.stop()
    now[0] = 30.0
    watch.stop()
    assert watch.elapsed == 7.0
