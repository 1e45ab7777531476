"""Count the samples and tokens of each batch, and end a fit after `max_duration`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.context.plan import IN_OTHER_LIMITS
from trainer_hooks.data.batch_counts import checked_counter, count_samples_and_tokens
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import RunContext

_COUNTERS = {
    TimeUnit.BATCH: "batches_completed",
    TimeUnit.SAMPLE: "samples_completed",
    TimeUnit.TOKEN: "tokens_completed",
}


def batch_counter(module: Module) -> Callable[[Any], tuple[int, int]]:
    """Return a function that counts the samples and tokens of a batch.

    It calls the module's `num_samples` and `num_tokens` if the module overrides one of them.
    """
    if defines(module, "num_samples", Module) or defines(module, "num_tokens", Module):
        own = ours(module)
        return checked_counter(own.num_samples, own.num_tokens, type(module).__qualname__)
    return count_samples_and_tokens


class DurationLimit:
    """A `max_duration` in batches, samples, tokens or wall time.

    Args:
        context: the run context.
        unit: the unit of the limit.
        limit: the limit, in that unit; seconds for wall time.
    """

    def __init__(self, context: RunContext, unit: TimeUnit, limit: int | float) -> None:
        self._progress = context.training.progress
        self._stopwatch = context.training.timekeeper.stopwatch
        self._counter = _COUNTERS.get(unit)
        self._limit = limit

    @property
    def is_counted(self) -> bool:
        """Whether the limit is a number of batches, samples or tokens, and not wall time."""
        return self._counter is not None

    def is_over(self) -> bool:
        """Return whether the limit is reached; the wall time includes validations."""
        if self._counter is None:
            return sum(self._stopwatch.measure()) >= self._limit
        done: int = getattr(self._progress, self._counter)
        return done >= self._limit


def make_duration_limit(context: RunContext) -> DurationLimit | None:
    """Return the limit to check after each batch, or None if other limits of the plan cover it."""
    time = context.plan.max_duration
    if time is None or time.unit in IN_OTHER_LIMITS:
        return None
    return DurationLimit(context, time.unit, time.value)
