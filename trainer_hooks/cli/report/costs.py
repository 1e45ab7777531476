"""What the callbacks of a run cost, from the trace that a profiled run leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal import number, text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Costs", "Spent", "costs_of"]

_MOST_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Spent:
    """What one callback took at one hook; times in seconds.

    Attributes:
        callback: its class.
        supplier: who supplied it.
        hook: the hook.
        calls: how often it was called.
        total: the time of all calls.
        mean: of one.
        longest: of the longest.
        share: of the time of the training batches, from 0 to 1; None outside of them.
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
class Costs:
    """What all of them took.

    Attributes:
        source: the file that tells it.
        batches: how many training batches were timed.
        batch_seconds: how long those took.
        spent: by callback and hook, most time first.
    """

    source: Path
    batches: int
    batch_seconds: float
    spent: list[Spent]


def costs_of(folder: Path, notes: list[str]) -> Costs | None:
    """Return what the newest trace in a folder tells, or None without one."""
    traces = sorted(folder.glob("hook_trace*.json"), key=lambda path: path.stat().st_mtime)
    if not traces:
        return None
    path = traces[-1]
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has over {_MOST_BYTES:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path} could not be read: {error}.")
        return None
    facts = found.get("otherData") if isinstance(found, dict) else None
    listed = facts.get("costs") if isinstance(facts, dict) else None
    if not isinstance(facts, dict) or not isinstance(listed, list):
        notes.append(f"{path} holds no table of costs: it was written by an older version.")
        return None
    spent = [_spent(record) for record in listed if isinstance(record, dict)]
    spent.sort(key=lambda item: -item.total)
    batches = int(number(facts, "training_batches"))
    return Costs(path, batches, number(facts, "batch_seconds"), spent)


def _spent(record: dict[str, Any]) -> Spent:
    return Spent(
        callback=text(record, "name"),
        supplier=text(record, "supplier"),
        hook=text(record, "hook"),
        calls=int(number(record, "calls")),
        total=number(record, "total"),
        mean=number(record, "mean"),
        longest=number(record, "max"),
        share=None if record.get("share") is None else number(record, "share"),
    )
