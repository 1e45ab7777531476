"""Moments and lengths of time as the report writes them."""

from __future__ import annotations

import time

from trainer_hooks.hooks import duration

__all__ = ["lasting", "moment"]

_MINUTE, _HOUR = 60, 3600


def moment(seconds: float) -> str:
    """Return a moment in the local time, or an empty string for none."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds > 0 else ""


def lasting(seconds: float) -> str:
    """Return a length of time in words that are short."""
    # not humanize: one more package for six lines
    if seconds < _MINUTE:
        return duration(seconds)
    minutes, rest = divmod(round(seconds), _MINUTE)
    if seconds < _HOUR:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
