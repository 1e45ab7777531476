"""How often something is done, written as in `"500ba"`: a number and a unit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainer_hooks.errors import OptionError

__all__ = ["UNITS", "Interval", "parse_interval"]

UNITS = {
    "ep": "epochs",
    "ba": "batches",
    "st": "optimizer steps",
    "iter": "iterations",
}
"""The units that an interval may have, and what each counts."""

_TEXT = re.compile(r"\s*(\d+(?:\.\d*)?(?:e\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of units.

    Attributes:
        count: how many, at least 1.
        unit: one of `UNITS`.
    """

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    def is_passed(self, before: int, now: int) -> bool:
        """Return whether a count went over a multiple of the interval, be it by a jump."""
        return now // self.count != before // self.count


def parse_interval(value: object, name: str, where: str) -> Interval:
    """Return the interval that `value` says: a text such as `"500ba"`, or a number of epochs.

    Args:
        value: what was given.
        name: the argument's name, for messages.
        where: whose argument it is.

    Raises:
        OptionError: it is neither, is no whole number above zero, or its unit is unknown.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        number, unit = float(value), "ep"
    elif isinstance(value, str) and (match := _TEXT.fullmatch(value)):
        number, unit = float(match[1]), match[2].lower()
    else:
        raise _refused(value, name, where)
    if unit not in UNITS or number < 1 or not number.is_integer():
        raise _refused(value, name, where)
    return Interval(int(number), unit)


def _refused(value: object, name: str, where: str) -> OptionError:
    units = ", ".join(f"{unit} ({counts})" for unit, counts in UNITS.items())
    return OptionError(
        f"{name} {value!r} of {where}: it must be a whole number above zero and a unit: {units}. "
        "Pass one such as '500ba', or a number of epochs."
    )
