"""Intervals: functions of the state and the event that say whether something is due."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.times import Time, TimeUnit

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.compat.composer.core.state import State

    Due = Callable[[State, Event], bool]

__all__ = ["create_interval_scheduler"]


def create_interval_scheduler(
    interval: Any,
    include_end_of_training: bool = True,
    checkpoint_events: bool = True,
    final_events: set[Event] | None = None,
) -> Due:
    """Return a function of the state and the event that is true at each multiple of an interval.

    Args:
        interval: a time, a text such as `"500ba"`, or a number of epochs; 0 for never.
        include_end_of_training: whether it is true at the end of the training, too.
        checkpoint_events: whether it is asked at the events for saving, and not at those before.
        final_events: the events that the end may be at.

    Raises:
        OptionError: it is no time.
    """
    time = Time.from_input(interval, TimeUnit.EPOCH)
    slot = "CHECKPOINT" if checkpoint_events else "END"
    at = {TimeUnit.EPOCH: "EPOCH", TimeUnit.ITERATION: "ITERATION"}.get(time.unit, "BATCH")
    event_of_interval = Event[f"{at}_{slot}"]
    finals = final_events or {Event.BATCH_CHECKPOINT, Event.EPOCH_CHECKPOINT}
    last_batch = -1

    def is_due(state: State, event: Event) -> bool:
        nonlocal last_batch
        if time.value <= 0 or state.previous_timestamp is None:
            return False
        batch = int(state.timestamp.batch)
        elapsed = state.get_elapsed_duration()
        is_over = elapsed is not None and elapsed.value >= 1.0
        is_final = include_end_of_training and event in finals and is_over and batch != last_batch
        if is_final or (event is event_of_interval and _is_crossed(state, time)):
            last_batch = batch
            return True
        return False

    return is_due


def _is_crossed(state: State, time: Time) -> bool:
    """Return whether the last batch, epoch or iteration led to a multiple of a time."""
    before, now = state.previous_timestamp, state.timestamp
    assert before is not None
    if time.unit is not TimeUnit.DURATION:
        counts = (before.get(time.unit).value, now.get(time.unit).value)
        return math.floor(counts[0] / time.value) != math.floor(counts[1] / time.value)
    longest = state.max_duration
    if longest is None or not longest.value:
        return False
    shares = (
        before.get(longest.unit).value / longest.value,
        now.get(longest.unit).value / longest.value,
    )
    return math.floor(shares[0] / time.value) != math.floor(shares[1] / time.value)
