"""Checks of the callbacks' options: each returns the value, or raises an error with the rule."""

from __future__ import annotations

import math
from typing import Any

from trainer_hooks.errors import OptionError


def check_count(name: str, value: Any, owner: str, least: int = 0) -> int:
    """Return a whole number of at least `least`.

    Raises:
        OptionError: it is none; True and False do not count as numbers.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(
            f"{name} {value!r} of {owner}: it must be a whole number of at least {least}. Pass "
            "such a number."
        )
    return value


def check_number(name: str, value: Any, owner: str, least: float = -math.inf) -> float:
    """Return a finite number of at least `least`.

    Raises:
        OptionError: it is none; True and False do not count as numbers.
    """
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_real or not math.isfinite(value) or value < least:
        bound = "" if least == -math.inf else f" of at least {least}"
        raise OptionError(
            f"{name} {value!r} of {owner}: it must be a finite number{bound}. Pass such a number."
        )
    number: float = value
    return number


def check_flag(name: str, value: Any, owner: str) -> bool:
    """Return True or False.

    Raises:
        OptionError: it is neither; 1 and 0 do not count.
    """
    if not isinstance(value, bool):
        raise OptionError(
            f"{name} {value!r} of {owner}: it must be one of True, False. Choose one of them."
        )
    return value
