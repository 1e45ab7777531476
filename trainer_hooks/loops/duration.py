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
        attributes = ours(module)
        return checked_counter(
            attributes.num_samples, attributes.num_tokens, type(module).__qualname__
        )
    return count_samples_and_tokens


class DurationLimit:
    """The plan's `max_duration` in batches, samples, tokens or wall time, checked after each batch.

    It is read from the plan each time, since it may be set while the fit runs. Without one, or in
    a unit that other limits of the plan cover, it is never over.

    Args:
        context: the run context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._progress = context.training.progress
        self._stopwatch = context.training.timekeeper.stopwatch

    @property
    def is_counted(self) -> bool:
        """Whether the limit is a number of batches, samples or tokens, and not wall time."""
        time = self._context.plan.max_duration
        return time is not None and time.unit in _COUNTERS

    def is_over(self) -> bool:
        """Return whether the limit is reached; the wall time includes validations."""
        time = self._context.plan.max_duration
        if time is None or time.unit in IN_OTHER_LIMITS:
            return False
        if time.unit not in _COUNTERS:
            return sum(self._stopwatch.measure()) >= time.value
        done: int = getattr(self._progress, _COUNTERS[time.unit])
        return done >= time.value
