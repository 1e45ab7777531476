"""Values logged by microbatches: combined into values of the batch, or undone with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainer_hooks.metrics.aggregator import FOR_BATCH
from trainer_hooks.metrics.metric_objects import load_metric_states, metric_parts, metric_states
from trainer_hooks.metrics.scalars import reduce_values
from trainer_hooks.runtime.nested_tensors import map_tensors

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.metrics.store import MetricStore


class MicrobatchValues:
    """Combine the step values of a batch's microbatches into one, for loggers and bars.

    The values of an epoch need no combining: each microbatch has its samples as weight there.

    Args:
        store: the metrics of the run.
    """

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        # what was logged before the first microbatch is no value of one
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
            # a single value is the batch's already, and a metric object combines its updates itself
            if len(parts) < 2 or aggregator.metric is not None:
                continue
            values, reduce_fx = torch.stack([value for value, _ in parts]), aggregator.reduce_fx
            aggregator.replace_last(
                reduce_fx(values)
                if callable(reduce_fx)
                else reduce_values(
                    reduce_fx, values, values.new_tensor([samples for _, samples in parts])
                )
            )


class LogSnapshot:
    """A copy of the logged values before a batch, to restore if the batch is run again.

    Args:
        store: the metrics of the run.
        module: the module, whose metric objects are copied too.
    """

    def __init__(self, store: MetricStore, module: nn.Module) -> None:
        self._store = store
        self._aggregators = {
            aggregator.name: (aggregator.state_dict(), aggregator.metric)
            for aggregator in store.current_aggregators()
        }
        self._latest = store.latest()
        self._parts = metric_parts(module, {})
        # metric objects change their states in place
        self._objects = map_tensors(metric_states(self._parts), Tensor.clone)

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
                # kept without values: the batch that is run again will log it again
                aggregator.forget()
        self._store.set_latest(self._latest)
        # last: to load an aggregator resets the metric object that it holds
        load_metric_states(self._parts, self._objects, device)
