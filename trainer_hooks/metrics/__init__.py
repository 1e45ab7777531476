"""Logged values: reduced, kept, and handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.metrics.history import History
    from trainer_hooks.metrics.microbatches import LoggedBefore, PartialValues
    from trainer_hooks.metrics.muted import MutedMetrics
    from trainer_hooks.metrics.objects import (
        load_metric_states,
        lost_metrics,
        metric_parts,
        metric_states,
    )
    from trainer_hooks.metrics.shared import SharedValues
    from trainer_hooks.metrics.store import MetricStore, Scope, floats

__all__ = [
    "History",
    "LoggedBefore",
    "MetricStore",
    "MutedMetrics",
    "PartialValues",
    "Scope",
    "SharedValues",
    "floats",
    "load_metric_states",
    "lost_metrics",
    "metric_parts",
    "metric_states",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "History": "history",
            "LoggedBefore": "microbatches",
            "MetricStore": "store",
            "MutedMetrics": "muted",
            "PartialValues": "microbatches",
            "Scope": "store",
            "SharedValues": "shared",
            "floats": "store",
            "load_metric_states": "objects",
            "lost_metrics": "objects",
            "metric_parts": "objects",
            "metric_states": "objects",
        },
    )
