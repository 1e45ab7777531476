"""EventSource, with the State and Timestamp of `compat.composer` in place of Composer's."""

from __future__ import annotations

import itertools
from datetime import timedelta
from types import SimpleNamespace

from for_each import for_each

from trainer_hooks.adapters.composer.event_source import (
    EventSource,
    advance_timestamp,
    handler_of,
)
from trainer_hooks.adapters.composer.events import DECLARED, EVENTS
from trainer_hooks.compat.composer import Timestamp


class Listener:
    """Keep the events that are fired."""

    evaluations_closed = 0

    def __init__(self):
        self.events = []

    def fire(self, event):
        self.events.append(event)


@for_each(sorted(EVENTS))
def test_each_hook_has_a_handler(hook) -> None:
    """A hook has a method of the source, or a single event that is fired as the hook comes."""
    handler = handler_of(EventSource, hook)
    if hasattr(EventSource, hook):
        assert handler is getattr(EventSource, hook)
    else:
        listener = Listener()
        source = SimpleNamespace(state=SimpleNamespace(keep=lambda *_: None))
        handler(source, listener, "trainer", "module", "argument")
        assert listener.events == [EVENTS[hook][0]]


def test_a_timestamp_advances_by_what_was_counted() -> None:
    """Batches since the last reading count all, in the epoch too, with their samples and time."""
    now = Timestamp(epoch=1, batch=4, batch_in_epoch=1, sample=16, sample_in_epoch=4)
    now = now.copy(total_wct=timedelta(seconds=2))
    later = advance_timestamp(now, (7, 28, 0), seconds=5.0)
    assert (later.epoch, later.batch, later.batch_in_epoch) == (1, 7, 4)
    assert (later.sample, later.sample_in_epoch) == (28, 16)
    assert (later.total_wct, later.batch_wct) == (timedelta(seconds=5), timedelta(seconds=3))


def test_a_clock_that_went_back_costs_no_time() -> None:
    """A resume whose clock is behind the timestamp takes no wall time away."""
    now = Timestamp(total_wct=timedelta(seconds=9))
    assert advance_timestamp(now, (1, 4, 0), seconds=1.0).total_wct == timedelta(seconds=9)


def test_what_is_declared_is_of_an_event() -> None:
    """Each difference that the docs tell of is at an event that is delivered."""
    assert set(DECLARED) <= set(itertools.chain.from_iterable(EVENTS.values()))
