"""What all that record with torch's profiler share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, supported_activities

from trainer_hooks.errors import OptionError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from torch.profiler import profile

__all__ = ["activities_of", "require_no_other", "write_trace"]

_ACTIVITIES = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mtia": "MTIA"}


def activities_of(activities: object, where: str) -> list[ProfilerActivity]:
    """Return what to record; all that this machine has for None.

    Args:
        activities: names, or members of `torch.profiler.ProfilerActivity`; one or several.
        where: whose argument it is, for messages.

    Raises:
        OptionError: an activity is unknown, or none is given.
    """
    if activities is None:
        known = supported_activities()  # type: ignore[no-untyped-call]
        return sorted(known, key=lambda activity: str(activity.name))
    is_one = isinstance(activities, str | ProfilerActivity)
    several = [activities] if is_one else activities
    names = ", ".join(map(repr, _ACTIVITIES))
    if not isinstance(several, list | tuple | set | frozenset) or not several:
        raise OptionError(
            f"activities {activities!r} of {where}: they must be one or more of {names}. Pass a "
            "list of them."
        )
    found = []
    for item in several:
        if isinstance(item, ProfilerActivity):
            found.append(item)
        elif isinstance(item, str) and item in _ACTIVITIES:
            found.append(getattr(ProfilerActivity, _ACTIVITIES[item]))
        else:
            raise OptionError(
                f"activities {item!r} of {where}: it must be one of {names}. Pass one of them."
            )
    return found


def require_no_other(where: str, advice: str) -> None:
    """Make sure that no other profiler of torch is running, which a new one would stop.

    Raises:
        UsageError: one is.
    """
    if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # noqa: SLF001
        raise UsageError(
            f"{where} cannot record: another profiler of torch is running, which it would stop. "
            f"{advice}"
        )


def write_trace(recorded: profile, path: Path) -> None:
    """Write what was recorded for https://ui.perfetto.dev, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        recorded.export_chrome_trace(str(unfinished))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
