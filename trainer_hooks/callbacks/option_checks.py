"""Checks of callback options: each returns the value or raises an OptionError with the rule.

The callbacks of `compat` check their options with the same functions.
"""

from __future__ import annotations

import math
from typing import Any

from trainer_hooks._options import (
    METRIC_NAME,
    TEXT,
    check_option,
    finite_number,
    one_of,
    whole_number,
)
from trainer_hooks.errors import OptionError

_MODES = ("min", "max")


def check_choice(name: str, value: object, where: str, choices: tuple[object, ...] = _MODES) -> Any:
    """Return `value` if it is one of `choices`.

    Args:
        name: the option's name.
        value: the value to check.
        where: the callback that has the option, for the message.
        choices: the allowed values; `"min"` and `"max"` unless given.

    Raises:
        OptionError: it is none of them; 1 and 0 do not count as True and False.
    """
    return check_option(name, value, where, one_of(*choices))


def check_count(name: str, value: object, where: str, least: int = 0) -> int:
    """Return `value` if it is an integer of at least `least`.

    Raises:
        OptionError: it is not; True and False do not count as integers.
    """
    # bool is a subclass of int
    checked: int = check_option(name, value, where, whole_number(least))
    return checked


def check_number(name: str, value: object, where: str, least: float = -math.inf) -> float:
    """Return `value` if it is a finite number of at least `least`.

    Raises:
        OptionError: it is not; True and False do not count as numbers.
    """
    checked: float = check_option(name, value, where, finite_number(least))
    return checked


def check_choices(
    name: str, value: object, where: str, choices: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the chosen items of `choices`, in the order of `choices`; a single string is one item.

    Raises:
        OptionError: an item is not among `choices`, or no item is given.
    """
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple | set | frozenset) or not several:
        raise OptionError(
            f"{name} {value!r} of {where}: it must be one or more of "
            f"{', '.join(map(repr, choices))}. Pass a list of them."
        )
    for item in several:
        check_choice(name, item, where, choices)
    return tuple(item for item in choices if item in several)


def check_text(name: str, value: object, where: str) -> str | None:
    """Return `value` if it is a non-empty string or None.

    Raises:
        OptionError: it is neither.
    """
    checked: str | None = check_option(name, value, where, TEXT)
    return checked


def check_monitor(monitor: object, where: str) -> str:
    """Return `monitor` if it is a non-empty string, as the name of a metric must be.

    Raises:
        OptionError: it is not.
    """
    checked: str = check_option("monitor", monitor, where, METRIC_NAME)
    return checked
