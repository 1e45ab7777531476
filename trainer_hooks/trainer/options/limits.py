"""Limits: how long a training may be, in whatever unit that is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from trainer_hooks.clock import Filter, Time, TimeUnit, every, parse_span, parse_time, parse_when
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import Plan

__all__ = [
    "as_option",
    "both_limits",
    "check_duration",
    "check_interval",
    "check_limit",
    "check_span",
    "is_interval",
    "with_duration",
    "with_limits",
    "with_number",
    "without_duration",
]

_T = TypeVar("_T")
_FILTERED = (TimeUnit.EPOCH, TimeUnit.ITERATION, TimeUnit.DURATION)
"""Units of a `val_check_interval` that are asked of the clock; batches have counters."""
_LIMITED = {
    "train": "limit_train_batches",
    "validate": "limit_val_batches",
    "test": "limit_test_batches",
    "predict": "limit_predict_batches",
}
_UNITS = tuple(unit for unit in TimeUnit if unit is not TimeUnit.DURATION)


def check_duration(value: object, iteration_length: int | None) -> Time:
    """Return the `max_duration` that was given.

    Raises:
        OptionError: it is no time above zero, a share of itself, or in iterations that there are
            none of.
    """
    time = as_option(parse_time, "max_duration", value, units=_UNITS)
    if time.unit is TimeUnit.ITERATION and iteration_length is None:
        raise OptionError(
            f"Trainer(max_duration={value!r}): there are no iterations without a length. Pass "
            "iteration_length= too, or give it in epochs, as in '10ep'."
        )
    return time


def check_span(option: str, value: object) -> float:
    """Return an option that is a wall time in seconds.

    Raises:
        OptionError: it is none.
    """
    return as_option(parse_span, option, value)


def is_interval(value: object) -> bool:
    """Return whether a `val_check_interval` is one in a unit, and no number."""
    return isinstance(value, str | Time | timedelta | Mapping) or callable(value)


def check_interval(value: Any) -> int | float | Time | Filter:
    """Return a `val_check_interval`: a number of batches, a share of an epoch, a time or a filter.

    Raises:
        OptionError: it is a time that is not above zero.
    """
    if isinstance(value, Mapping):
        value = timedelta(seconds=check_span("val_check_interval", value))
    if not is_interval(value):
        number: int | float = value
        return number
    if callable(value):
        return parse_when(value, "val_check_interval", "Trainer")
    time = as_option(parse_time, "val_check_interval", value)
    if time == Time(1, "ep"):
        return 1.0
    if time.unit in _FILTERED:
        return every(time)
    return int(time) if time.unit is TimeUnit.BATCH else time


def as_option(parse: Callable[..., _T], option: str, value: object, **rules: Any) -> _T:
    """Return what `parse` makes of an option; its errors begin as those of other options do."""
    try:
        return parse(value, option, "Trainer", **rules)
    except OptionError as error:
        rule = str(error).removeprefix(f"{option} {value!r} of Trainer: ")
        raise OptionError(f"Trainer({option}={value!r}): {rule}") from None


def with_duration(plan: Plan, duration: Time) -> Plan:
    """Return a plan that ends with `duration`, whatever it ended with in the same unit before."""
    plan = replace(plan, max_duration=duration)
    if duration.unit is TimeUnit.STEP:
        return replace(plan, max_steps=int(duration))
    if duration.unit is TimeUnit.EPOCH:
        return replace(plan, max_epochs=int(duration))
    if duration.unit is TimeUnit.ITERATION:
        return replace(plan, max_epochs=int(duration) * (plan.iteration_length or 1))
    return plan


def without_duration(plan: Plan, option: str) -> Plan:
    """Return a plan in which `max_epochs` or `max_steps` no longer stands for the duration."""
    units = (TimeUnit.STEP,) if option == "max_steps" else (TimeUnit.EPOCH, TimeUnit.ITERATION)
    is_meant = plan.max_duration is not None and plan.max_duration.unit in units
    return replace(plan, max_duration=None) if is_meant else plan


def with_number(plan: Plan, option: str, value: int) -> Plan:
    """Return a plan with another `max_epochs`, `max_steps` or `accumulate_grad_batches`.

    Raises:
        OptionError: it is no number of the option's.
    """
    lowest = 1 if option == "accumulate_grad_batches" else -1
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise OptionError(f"trainer.{option} = {value!r}: must be an int of at least {lowest}.")
    if option in ("max_epochs", "max_steps"):
        plan = without_duration(plan, option)
    changes: dict[str, Any] = {option: value}
    return replace(plan, **changes)


def both_limits(one: Plan, other: Plan) -> Plan:
    """Return `one` with the lower of both plans' epochs and steps."""
    return replace(
        one,
        max_epochs=_lower(one.max_epochs, other.max_epochs),
        max_steps=_lower(one.max_steps, other.max_steps),
    )


def _lower(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


def check_limit(number: object, where: str) -> int:
    """Return a number of batches that is at most to be run.

    Raises:
        OptionError: it is none from 1 on.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise OptionError(
            f"number {number!r} of {where}: it must be a whole number from 1 on. Pass one."
        )
    return number


def with_limits(plan: Plan, number: object, stages: tuple[str, ...]) -> Plan:
    """Return a plan with at most `number` batches of each loader of these stages, or of all.

    Raises:
        OptionError: the number or a stage is outside its rule.
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
        is_number = isinstance(present, int)
        limits[_LIMITED[stage]] = min(present, most) if is_number or present == 0 else most
    return replace(plan, **limits)
