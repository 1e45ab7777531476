"""The times that callbacks took at hooks, read from the hook trace of a profiled run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal_reader import number, text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HookTime", "HookTimes", "read_hook_times"]

_MAX_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class HookTime:
    """The time that one callback took at one hook, in seconds.

    Attributes:
        callback: the name of its class.
        supplier: where it came from: the trainer's options, a distribution, the user.
        hook: the hook's name.
        calls: the number of calls.
        total: the time of all calls.
        mean: the mean time of a call.
        longest: the time of the longest call.
        share: the share of the training batches' time, from 0 to 1; None for other hooks.
    """

    callback: str
    supplier: str
    hook: str
    calls: int
    total: float
    mean: float
    longest: float
    share: float | None


@dataclass(frozen=True, slots=True)
class HookTimes:
    """The times of all callbacks of a run.

    Attributes:
        source: the trace file.
        batches: the number of timed training batches.
        batch_seconds: the time of those, in seconds.
        spent: the times by callback and hook, the longest total first.
    """

    source: Path
    batches: int
    batch_seconds: float
    spent: list[HookTime]


def read_hook_times(folder: Path, notes: list[str]) -> HookTimes | None:
    """Read the newest hook trace in a folder; None without one.

    Args:
        folder: the run's folder.
        notes: a list to which the reason is added if a trace cannot be read.
    """
    traces = sorted(folder.glob("hook_trace*.json"), key=lambda path: path.stat().st_mtime)
    if not traces:
        return None
    path = traces[-1]
    try:
        # a trace of a long run may not fit into memory
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it has over {_MAX_BYTES:,} bytes")
        trace = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path} could not be read: {error}.")
        return None
    other_data = trace.get("otherData") if isinstance(trace, dict) else None
    costs = other_data.get("costs") if isinstance(other_data, dict) else None
    if not isinstance(other_data, dict) or not isinstance(costs, list):
        notes.append(f"{path} holds no table of costs: it was written by an older version.")
        return None
    spent = [_hook_time(record) for record in costs if isinstance(record, dict)]
    spent.sort(key=lambda item: -item.total)
    batches = int(number(other_data, "training_batches"))
    return HookTimes(path, batches, number(other_data, "batch_seconds"), spent)


def _hook_time(record: dict[str, Any]) -> HookTime:
    return HookTime(
        callback=text(record, "name"),
        supplier=text(record, "supplier"),
        hook=text(record, "hook"),
        calls=int(number(record, "calls")),
        total=number(record, "total"),
        mean=number(record, "mean"),
        longest=number(record, "max"),
        share=None if record.get("share") is None else number(record, "share"),
    )
