"""Values logged by microbatches: combined into values of the batch, or undone with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.metrics.aggregator import FOR_BATCH
from trainer_hooks.metrics.metric_objects import load_metric_states, metric_parts, metric_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from trainer_hooks.metrics.aggregator import MetricAggregator
    from trainer_hooks.metrics.store import MetricStore

__all__ = ["LogSnapshot", "MicrobatchValues"]


class MicrobatchValues:
    """Combine the step values of a batch's microbatches into one, for loggers and bars.

    The values of an epoch need no combining: each microbatch has its samples as weight there.

    Args:
        store: the metrics of the run.
    """

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        for aggregator in store.current_aggregators():
            aggregator.unread &= ~FOR_BATCH
        self._values: dict[str, list[tuple[Tensor, int]]] = {}

    def take(self, samples: int) -> None:
        """Keep the values that one microbatch logged.

        Args:
            samples: its number of samples.
        """
        for aggregator in self._store.current_aggregators():
            if aggregator.on_step and aggregator.unread & FOR_BATCH:
                aggregator.unread &= ~FOR_BATCH
                value = aggregator.value
                if value is not None:
                    self._values.setdefault(aggregator.name, []).append((value, samples))

    def combine(self) -> None:
        """Replace the last value of each metric by the reduction of the microbatches' values."""
        for aggregator in self._store.current_aggregators():
            parts = self._values.get(aggregator.name, ())
            if len(parts) > 1 and aggregator.metric is None:
                aggregator.replace_last(_reduce(aggregator, parts))


def _reduce(aggregator: MetricAggregator, parts: Sequence[tuple[Tensor, int]]) -> Tensor:
    """Return one value for those of several microbatches.

    Args:
        aggregator: the metric.
        parts: value and number of samples of each microbatch.
    """
    values = torch.stack([value for value, _ in parts])
    if callable(aggregator.reduce_fx):
        return aggregator.reduce_fx(values)
    if aggregator.reduce_fx == "mean":
        weights = values.new_tensor([samples for _, samples in parts])
        return (values * weights).sum() / weights.sum()
    if aggregator.reduce_fx == "sum":
        return values.sum()
    return values.min() if aggregator.reduce_fx == "min" else values.max()


class LogSnapshot:
    """A copy of the logged values before a batch, to restore if the batch is run again.

    Args:
        store: the metrics of the run.
        module: the module, whose metric objects are copied too.
    """

    def __init__(self, store: MetricStore, module: nn.Module) -> None:
        self._store = store
        self._aggregators = {
            one.name: (one.state_dict(), one.metric) for one in store.current_aggregators()
        }
        self._latest = store.latest()
        self._parts = metric_parts(module, {})
        self._objects = {
            name: {"values": _cloned(state["values"]), "updates": state["updates"]}
            for name, state in metric_states(self._parts).items()
        }

    def restore(self, device: torch.device) -> None:
        """Undo everything that was logged since.

        Args:
            device: the device for values that were not on the CPU.
        """
        for aggregator in self._store.current_aggregators():
            if aggregator.name in self._aggregators:
                state, metric = self._aggregators[aggregator.name]
                aggregator.load_state_dict(state, device)
                aggregator.metric = metric
            else:
                aggregator.forget()
        self._store.set_latest(self._latest)
        load_metric_states(self._parts, self._objects, device)


def _cloned(values: dict[str, Any]) -> dict[str, Any]:
    """Return copies of a metric object's states, which it changes in place."""
    return {
        name: value.clone() if isinstance(value, Tensor) else [item.clone() for item in value]
        for name, value in values.items()
    }
