"""The length of a training: its limits in every unit, and the optimizer steps that they allow."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from trainer_hooks._options import Rule, check_attribute, check_option, integer, is_int
from trainer_hooks.clock.schedules import DueCondition, every, parse_when
from trainer_hooks.clock.timing import Time, TimeUnit, parse_span, parse_time
from trainer_hooks.context.plan import IN_OTHER_LIMITS
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.plan import RunPlan

_T = TypeVar("_T")
_NUMBER = Rule("a whole number from 1 on", lambda value: is_int(value, 1), "Pass one.")
_FILTERED = (TimeUnit.EPOCH, TimeUnit.ITERATION, TimeUnit.DURATION)
"""Units of a `val_check_interval` that become a condition on the clock."""
_LIMITED = {
    "train": "limit_train_batches",
    "validate": "limit_val_batches",
    "test": "limit_test_batches",
    "predict": "limit_predict_batches",
}
_UNITS = tuple(unit for unit in TimeUnit if unit is not TimeUnit.DURATION)


def check_duration(value: object, iteration_length: int | None) -> Time:
    """Return a `max_duration` as a Time.

    Raises:
        OptionError: it is no time above zero, a share of itself, or in iterations although there is
            no `iteration_length`.
    """
    time = as_option(parse_time, "max_duration", value, units=_UNITS)
    if time.unit is TimeUnit.ITERATION and iteration_length is None:
        raise OptionError(
            f"Trainer(max_duration={value!r}): there are no iterations without a length. Pass "
            "iteration_length= too, or give it in epochs, as in '10ep'."
        )
    return time


def is_interval(value: object) -> bool:
    """Return whether a `val_check_interval` has a unit, and is no plain number."""
    return isinstance(value, str | Time | timedelta | Mapping) or callable(value)


def check_interval(value: Any) -> int | float | Time | DueCondition:
    """Return a `val_check_interval` as a number of batches, a share, a Time or a filter.

    Raises:
        OptionError: it is a time that is not above zero.
    """
    if isinstance(value, Mapping):
        value = timedelta(seconds=as_option(parse_span, "val_check_interval", value))
    if not is_interval(value):
        number: int | float = value
        return number
    if callable(value):
        return parse_when(value, "val_check_interval", "Trainer")
    time = as_option(parse_time, "val_check_interval", value)
    # the default: after the last batch of each epoch, however many there are
    if time == Time(1, "ep"):
        return 1.0
    if time.unit in _FILTERED:
        return every(time)
    return int(time) if time.unit is TimeUnit.BATCH else time


def as_option(parse: Callable[..., _T], option: str, value: object, **rules: Any) -> _T:
    """Return an option parsed by `parse`, with errors worded as those of other options."""
    try:
        return parse(value, option, "Trainer", **rules)
    except OptionError as error:
        rule = str(error).removeprefix(f"{option} {value!r} of Trainer: ")
        raise OptionError(f"Trainer({option}={value!r}): {rule}") from None


def with_duration(plan: RunPlan, duration: Time) -> RunPlan:
    """Return a plan that ends with `duration`, which replaces its limit in the same unit."""
    plan = replace(plan, max_duration=duration)
    if duration.unit is TimeUnit.STEP:
        return replace(plan, max_steps=int(duration))
    if duration.unit is TimeUnit.EPOCH:
        return replace(plan, max_epochs=int(duration))
    if duration.unit is TimeUnit.ITERATION:
        # `or 1` for the type alone: `check_duration` has required a length
        return replace(plan, max_epochs=int(duration) * (plan.iteration_length or 1))
    return plan


def without_duration(plan: RunPlan, option: str) -> RunPlan:
    """Return a plan whose `max_epochs` or `max_steps` no longer comes from `max_duration`."""
    units = (TimeUnit.STEP,) if option == "max_steps" else (TimeUnit.EPOCH, TimeUnit.ITERATION)
    is_meant = plan.max_duration is not None and plan.max_duration.unit in units
    return replace(plan, max_duration=None) if is_meant else plan


def with_number(plan: RunPlan, option: str, value: int) -> RunPlan:
    """Return a plan with another `max_epochs`, `max_steps` or `accumulate_grad_batches`.

    Raises:
        OptionError: the value breaks the option's rule.
    """
    lowest = 1 if option == "accumulate_grad_batches" else -1
    check_attribute(f"trainer.{option}", value, integer(lowest))
    if option in ("max_epochs", "max_steps"):
        plan = without_duration(plan, option)
    changes: dict[str, Any] = {option: value}
    return replace(plan, **changes)


def both_limits(one: RunPlan, other: RunPlan) -> RunPlan:
    """Return `one` with the lower of both plans' epochs and steps."""
    return replace(
        one,
        max_epochs=_lower(one.max_epochs, other.max_epochs),
        max_steps=_lower(one.max_steps, other.max_steps),
    )


def _lower(one: int, other: int) -> int:
    # -1 is no limit, so that the other one counts
    return max(one, other) if min(one, other) < 0 else min(one, other)


def check_limit(number: object, where: str) -> int:
    """Return a number of batches if it is an int of at least 1.

    Raises:
        OptionError: it is not.
    """
    checked: int = check_option("number", number, where, _NUMBER)
    return checked


def with_limits(plan: RunPlan, number: object, stages: tuple[str, ...]) -> RunPlan:
    """Return a plan with at most `number` batches of each loader of these stages, or of all stages.

    Raises:
        OptionError: the number or a stage breaks its rule.
    """
    where = "trainer.limit_batches"
    most = check_limit(number, where)
    limits: dict[str, Any] = {}
    for stage in stages or _LIMITED:
        if stage not in _LIMITED:
            raise OptionError(
                f"stage {stage!r} of {where}: it must be one of {', '.join(map(repr, _LIMITED))}."
                " Pass such stages, or none for all."
            )
        present = getattr(plan, _LIMITED[stage])
        # a share cannot be compared with a number; only 0.0, which is nothing, stays
        is_number = isinstance(present, int)
        limits[_LIMITED[stage]] = min(present, most) if is_number or present == 0 else most
    return replace(plan, **limits)


SHARE_RULE = "a share over 0% and under 100%, as '2%' or 0.02"

_PERCENT = r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*"


def as_share(value: object) -> float | None:
    """Return a share as a float, 0.02 for `"2%"`; None if the value is no share."""
    if isinstance(value, str):
        match = re.fullmatch(_PERCENT, value, re.ASCII)
        value = float(match[1]) / 100 if match is not None else None
    return value if isinstance(value, float) and 0 < value < 1 else None


def estimate_steps(
    plan: RunPlan, length: int | float, samples: tuple[int, int] | None = None, repeated: int = 0
) -> int | float:
    """Return the number of optimizer steps of a whole fit, or infinity if it cannot be known.

    Args:
        plan: the limits of the fit.
        length: the number of batches in an epoch, infinity if unknown.
        samples: the number of samples in a batch and in an epoch, None if unknown.
        repeated: the accumulation windows of epochs that were left, and begun again.
    """
    every = plan.accumulate_grad_batches
    # rounded up: the last window of an epoch steps, even if it is not full
    windows = length if length == math.inf else math.ceil(length / every)
    # `if max_epochs`, as infinity * 0 is NaN
    limits: list[int | float] = []
    if plan.max_epochs >= 0:
        limits.append((windows * plan.max_epochs if plan.max_epochs else 0) + repeated)
    limits += [plan.max_steps] if plan.max_steps >= 0 else []
    batches = _batches_in(plan, length, samples)
    if batches is not None:
        epochs, rest = divmod(batches, length or math.inf)
        # likewise
        limits.append((epochs * windows if epochs else 0) + rest // every)
    return min(limits, default=math.inf)


def _batches_in(
    plan: RunPlan, length: int | float, samples: tuple[int, int] | None
) -> int | float | None:
    """Return a `max_duration` in batches, if it is in batches or samples; else None."""
    most = plan.max_duration
    if most is None or most.unit not in (TimeUnit.BATCH, TimeUnit.SAMPLE):
        return None
    if most.unit is TimeUnit.BATCH:
        return int(most)
    if samples is None or not samples[1]:
        return None
    # whole epochs first, as the last batch of one may have fewer samples
    epochs, rest = divmod(int(most), samples[1])
    return epochs * length + math.ceil(rest / samples[0])


def why_steps_unknown(plan: RunPlan, length: int | float) -> str:
    """Return the reason why the number of optimizer steps cannot be known."""
    most = plan.max_duration
    if most is not None and most.unit not in IN_OTHER_LIMITS:
        what = "wall time" if most.unit is TimeUnit.SECOND else f"{most.unit.name.lower()}s"
        return f"max_duration={str(most)!r} is in {what}, and how many a step takes is not known"
    if plan.max_epochs >= 0 and length == math.inf:
        return "the training loader has no length, or is not there yet"
    if plan.max_seconds is not None:
        return "max_time is wall time, and how much a step takes is not known"
    return "nothing ends the training, as with max_epochs=-1"
