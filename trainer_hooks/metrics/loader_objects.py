"""LoaderObjects: metric objects that are logged for several evaluation loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.metric_objects import (
    is_metric_object,
    merge_object_states,
    object_state,
    set_object_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.metrics.aggregator import MetricAggregator


class LoaderObjects:
    """The metric objects of an evaluation that were logged under a loader's own name.

    Such an object begins each further loader without the batches of the ones before, so that each
    name has the value of its loader. Outside of loaders it has the batches of all of them.
    """

    def __init__(self) -> None:
        # the object, and its state over each loader so far, by the object's id
        self._split: dict[int, tuple[Any, list[Any]]] = {}
        self._without_states: list[Any] = []

    def begin_loader(self) -> None:
        """Reset the objects that were logged for a loader before."""
        for metric, states in self._split.values():
            state = object_state(metric)
            if state[""]["updates"] != sum(part[""]["updates"] for part in states):
                # updated between the loaders, too: that counts for all of them together
                states[:] = [state]
        # after all states are read: one object may be inside another
        for metric, _ in self._split.values():
            metric.reset()

    def end_loader(self, aggregators: Iterable[MetricAggregator], *, computes: bool) -> None:
        """Keep the objects' states over a loader that is completed, and join them with the others.

        Args:
            aggregators: those of the loader.
            computes: whether to compute the values of this loader's objects now.

        Raises:
            MetricError: an object was logged for a second loader and its state cannot be read.
        """
        logged = [
            aggregator
            for aggregator in aggregators
            if aggregator.metric is not None and aggregator.suffix
        ]
        for aggregator in logged:
            metric = aggregator.metric
            if computes and aggregator.on_epoch:
                aggregator.shared = aggregator.reduce()
            if is_metric_object(metric):
                aggregator.loader_state = object_state(metric)
                self._split.setdefault(id(metric), (metric, []))
            elif any(metric is earlier for earlier in self._without_states):
                raise MetricError(
                    f"log({aggregator.name!r}) was given a {type(metric).__qualname__} that was "
                    "logged for another evaluation loader: it has no metric_state, as metrics of "
                    "torchmetrics have, so the loaders' values cannot be told apart. Log an object "
                    "of its own for each loader."
                )
        self._without_states += [
            aggregator.metric for aggregator in logged if not is_metric_object(aggregator.metric)
        ]
        for metric, states in self._split.values():
            states.append(object_state(metric))
        for metric, states in self._split.values():
            if len(states) > 1:
                set_object_state(metric, merge_object_states(metric, states))
