"""Shares of a time, as users write them."""

from __future__ import annotations

import re

__all__ = ["SHARE_RULE", "as_share"]

SHARE_RULE = "a share over 0% and under 100%, as '2%' or 0.02"

_PERCENT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", re.ASCII)


def as_share(value: object) -> float | None:
    """Return the share that a value stands for, as 0.02 for `"2%"`; None if it is none."""
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        value = float(match[1]) / 100 if match is not None else None
    return value if isinstance(value, float) and 0 < value < 1 else None
