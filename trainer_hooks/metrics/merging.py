"""Metric objects of several processes: their states merged, as torchmetrics would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.values import scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.metrics.slot import Slot

__all__ = ["keep_apart", "merged", "require_mergeable"]


def keep_apart(metric: Any) -> None:
    """Let a metric object not talk to other processes by itself, each at a moment of its own."""
    if hasattr(metric, "sync_on_compute"):
        metric.sync_on_compute = False
        # what it goes by, set from the above in its __init__ alone
        metric.__dict__["_to_sync"] = False


def require_mergeable(name: str, slot: Slot) -> None:
    """Make sure that an object that is to be reduced over processes says how.

    Raises:
        MetricError: it does not.
    """
    if slot.is_synced and not hasattr(slot.metric, "metric_state"):
        raise MetricError(
            f"log({name!r}, sync_dist=True) was given a {type(slot.metric).__qualname__}, which "
            "does not say how its states are merged: use a metric of torchmetrics, or log without "
            "sync_dist."
        )


def merged(name: str, metric: Any, parts: Sequence[tuple[dict[str, Any], int]]) -> Tensor:
    """Return what a metric object computes over the states of all processes.

    Args:
        name: what it is logged under.
        metric: it; it keeps its own state.
        parts: the states of the processes, and how often each was updated.
    """
    reductions: dict[str, Any] = metric.__dict__["_reductions"]
    before = dict(metric.metric_state), metric.__dict__.get("_update_count")
    try:
        for state, reduce in reductions.items():
            values = [part[state] for part, _ in parts]
            own = before[0][state]
            if isinstance(own, list):
                together: Any = [item.to(metric.device) for value in values for item in value]
            else:
                stacked = torch.stack([value.to(own.device) for value in values])
                together = reduce(stacked) if reduce is not None else stacked
            setattr(metric, state, together)
        metric.__dict__["_update_count"] = sum(count for _, count in parts)
        metric.__dict__["_computed"] = None
        return scalar(name, metric.compute(), "a metric object")
    finally:
        for state, value in before[0].items():
            setattr(metric, state, value)
        metric.__dict__["_update_count"] = before[1]
        metric.__dict__["_computed"] = None
