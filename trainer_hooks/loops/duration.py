"""What a fit counts of each batch, and the duration that it may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import TimeUnit
from trainer_hooks.context import IN_OTHER_LIMITS
from trainer_hooks.data import checked_counter, measure
from trainer_hooks.loops.steps import overrides

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import RunContext
    from trainer_hooks.module import Module

__all__ = ["Duration", "counter_of", "duration_of"]

_COUNTERS = {
    TimeUnit.BATCH: "batches_completed",
    TimeUnit.SAMPLE: "samples_completed",
    TimeUnit.TOKEN: "tokens_completed",
}


def counter_of(module: Module) -> Callable[[Any], tuple[int, int]]:
    """Return what counts the samples and tokens of a batch: the module's own way if it has one."""
    if overrides(module, "num_samples") or overrides(module, "num_tokens"):
        return checked_counter(module.num_samples, module.num_tokens, type(module).__qualname__)
    return measure


class Duration:
    """A `max_duration` in batches, samples, tokens or wall time.

    Args:
        context: the run.
        unit: what it counts.
        most: how many there may be.
    """

    def __init__(self, context: RunContext, unit: TimeUnit, most: int | float) -> None:
        self._progress = context.training.progress
        self._stopwatch = context.training.timekeeper.stopwatch
        self._counter = _COUNTERS.get(unit)
        self._most = most

    @property
    def is_counted(self) -> bool:
        """Whether it is a number of batches, samples or tokens, and no wall time."""
        return self._counter is not None

    def is_over(self) -> bool:
        """Return whether as much was trained; of wall time validations count, too."""
        if self._counter is None:
            return sum(self._stopwatch.measure()) >= self._most
        done: int = getattr(self._progress, self._counter)
        return done >= self._most


def duration_of(context: RunContext) -> Duration | None:
    """Return the duration to look at after each batch; None where other limits stand for it."""
    time = context.plan.max_duration
    if time is None or time.unit in IN_OTHER_LIMITS:
        return None
    return Duration(context, time.unit, time.value)
