"""Spans of time in the trace format that chrome://tracing and ui.perfetto.dev open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Span", "chrome_trace"]

Span = tuple[int, str, int, int]
"""Lane, name, start and length; the times in ns."""


def chrome_trace(
    spans: Iterable[Span], lanes: Mapping[int, str], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a trace as plain data for JSON: "complete" events in microseconds.

    Args:
        spans: what happened.
        lanes: the lanes' names by number, which are drawn in that order.
        facts: what else is to be told, under `otherData`.
    """
    process = os.getpid()
    # a span that encloses others comes before them, though it ended after them
    ordered = sorted(spans, key=lambda span: (span[2], -span[3]))
    origin = ordered[0][2] if ordered else 0
    events: list[dict[str, Any]] = [
        {"name": name, "ph": "M", "pid": process, "tid": lane, "args": arguments}
        for lane, title in lanes.items()
        for name, arguments in (
            ("thread_name", {"name": title}),
            ("thread_sort_index", {"sort_index": lane}),
        )
    ]
    events += [
        {
            "name": name,
            "cat": "hook" if lane else "batch",
            "ph": "X",
            "ts": (start - origin) / 1000,
            "dur": length / 1000,
            "pid": process,
            "tid": lane,
        }
        for lane, name, start, length in ordered
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(facts)}
