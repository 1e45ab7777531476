"""Length: how many optimizer steps a whole fit makes, as far as that can be known before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer_hooks.clock import TimeUnit
from trainer_hooks.context import IN_OTHER_LIMITS

if TYPE_CHECKING:
    from trainer_hooks.context import Plan

__all__ = ["steps_in", "why_endless"]


def steps_in(
    plan: Plan, length: int | float, samples: tuple[int, int] | None = None
) -> int | float:
    """Return the optimizer steps of a whole fit, or infinity where nobody can know.

    Args:
        plan: its limits.
        length: batches of an epoch, infinity if unknown.
        samples: samples of a batch and of an epoch, None if unknown.
    """
    every = plan.accumulate_grad_batches
    windows = length if length == math.inf else math.ceil(length / every)
    limits = [windows * plan.max_epochs] if plan.max_epochs >= 0 else []
    limits += [plan.max_steps] if plan.max_steps >= 0 else []
    batches = _batches_in(plan, length, samples)
    if batches is not None:
        epochs, rest = divmod(batches, length or math.inf)
        limits.append((epochs * windows if epochs else 0) + rest // every)
    return min(limits, default=math.inf)


def _batches_in(
    plan: Plan, length: int | float, samples: tuple[int, int] | None
) -> int | float | None:
    """Return the batches that a `max_duration` in batches or samples is; None if there is none."""
    most = plan.max_duration
    if most is None or most.unit not in (TimeUnit.BATCH, TimeUnit.SAMPLE):
        return None
    if most.unit is TimeUnit.BATCH:
        return int(most)
    if samples is None or not samples[1]:
        return None
    epochs, rest = divmod(int(most), samples[1])
    return epochs * length + math.ceil(rest / samples[0])


def why_endless(plan: Plan, length: int | float) -> str:
    """Return why nobody can know how many steps a fit will make."""
    most = plan.max_duration
    if most is not None and most.unit not in IN_OTHER_LIMITS:
        what = "wall time" if most.unit is TimeUnit.SECOND else f"{most.unit.name.lower()}s"
        return f"max_duration={str(most)!r} is in {what}, and how many a step takes is not known"
    if plan.max_epochs >= 0 and length == math.inf:
        return "the training loader has no length, or is not there yet"
    if plan.max_seconds is not None:
        return "max_time is wall time, and how much a step takes is not known"
    return "nothing ends the training, as with max_epochs=-1"
