"""RankReducer: reduces logged values over the ranks, in one exchange for all due metrics."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.metrics.metric_objects import (
    holding_state,
    is_metric_object,
    merge_object_states,
)
from trainer_hooks.metrics.scalars import reduce_values, scalar
from trainer_hooks.metrics.store import restored_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from trainer_hooks.metrics.aggregator import MetricAggregator
    from trainer_hooks.metrics.store import LogScope, MetricStore
    from trainer_hooks.runtime.process_group import ProcessGroup

Key = tuple[str, int, str]
"""Scope, loader index and name of a metric."""

_RANK_ZERO_ONLY = 7
"""Position in the arguments of `log`, as `MetricStore.log` takes them."""
_HEAD = 2
"""Numbers of a row before those of the metrics; the first is the checksum of the names."""
_CELLS = 3
"""Numbers of a row for each metric: a total, a weight, and whether there is a value."""


@dataclass(slots=True)
class _Layout:
    """The layout of the rows that the ranks exchange for the metrics of some scopes.

    Attributes:
        known: for each rank, the checksum of its metrics' names.
        keys: the metrics of all ranks, in the order of their cells.
        descriptions: the arguments of `log` for each, for ranks that do not log it.
        objects: the metrics that are metric objects.
        room: length of a row.
    """

    known: list[float] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    descriptions: dict[Key, dict[str, Any]] = field(default_factory=dict)
    objects: frozenset[Key] = frozenset()
    room: int = _HEAD + 16 * _CELLS


class RankReducer:
    """Make the values of an epoch, or of a step, the same on all ranks.

    Values that were logged with `sync_dist=True`, and metric objects, are reduced over all ranks.
    For all others rank 0's value counts everywhere, so that callbacks which decide by a metric
    decide alike. Each rank sends its totals and weights in one row of a length that all know; names
    are exchanged only if they changed.

    Args:
        processes: all ranks.
    """

    def __init__(self, processes: ProcessGroup) -> None:
        self._processes = processes
        self._layouts: dict[tuple[LogScope, ...], _Layout] = {}
        self._warned_names: set[str] = set()

    def disable_own_sync(self, metric: Any) -> None:
        """Keep a metric object from synchronising by itself, in a collective of its own."""
        if hasattr(metric, "sync_on_compute"):
            metric.sync_on_compute = False
            # torchmetrics reads this attribute, which it sets from `sync_on_compute` only once
            metric.__dict__["_to_sync"] = False

    def reduce_epoch(self, store: MetricStore, scopes: tuple[LogScope, ...]) -> None:
        """Reduce the values of `scopes` in the unfinished epoch over the ranks."""
        aggregators = {
            (scope.name, index, name): aggregator
            for scope, index, name, aggregator in store.aggregators_by_scope(scopes)
            if aggregator.on_epoch and aggregator.has_own_values and not aggregator.is_lost
        }
        layout, rows = self._exchange(scopes, aggregators)
        for position, key in enumerate(layout.keys):
            # only other ranks logged it, but callbacks must be able to monitor it in all
            if store.aggregator_at(*key) is None:
                description = layout.descriptions[key]
                store.add_aggregator(
                    *key, restored_call(description["call"]), description["suffix"]
                )
            aggregator = store.aggregator_at(*key)
            if aggregator is not None and key not in layout.objects:
                start = _HEAD + _CELLS * position
                aggregator.shared = _reduce_cells(aggregator, rows[:, start : start + _CELLS])
        if layout.objects:
            self._reduce_objects(store, aggregators, layout)

    def reduce_steps(self, store: MetricStore) -> None:
        """Reduce the last values of metrics that are logged by step with `sync_dist`."""
        aggregators = {
            aggregator.name: aggregator
            for aggregator in store.current_aggregators()
            if aggregator.is_synced_by_step
        }
        own_values = {
            name: float(aggregator.value)
            for name, aggregator in aggregators.items()
            if aggregator.value is not None
        }
        # also without a value of its own: the other ranks wait in this collective
        gathered = self._processes.gather(own_values)
        for name, aggregator in aggregators.items():
            values = torch.tensor(
                [of_rank[name] for of_rank in gathered if name in of_rank], dtype=torch.float64
            )
            if len(values) < len(gathered):
                ranks = [str(rank) for rank, of_rank in enumerate(gathered) if name in of_rank]
                self._warn_missing(name, ranks)
            if not len(values):
                continue
            reduce_fx = aggregator.reduce_fx
            reduced = reduce_values("mean" if callable(reduce_fx) else reduce_fx, values)
            aggregator.replace_last(reduced.to(torch.float32))

    def _exchange(
        self, scopes: tuple[LogScope, ...], aggregators: Mapping[Key, MetricAggregator]
    ) -> tuple[_Layout, Tensor]:
        """Return the layout, and a matrix with the row of each rank.

        Args:
            scopes: the scopes to exchange.
            aggregators: this rank's metrics.
        """
        layout = self._layouts.get(scopes)
        # not `hash`, which differs among processes; and 32 bits fit into a float64 without loss
        checksum = float(zlib.crc32(repr(sorted(aggregators)).encode()))
        if layout is None:
            layout = self._layouts[scopes] = _Layout()
        rows = self._processes.all_gather_rows(_row(layout, aggregators, checksum), "logged values")
        # every rank compares the same checksums, so all of them enter the second exchange or none
        if rows[:, 0].tolist() != layout.known:
            self._agree_on_names(layout, aggregators, rows[:, 0].tolist())
            rows = self._processes.all_gather_rows(
                _row(layout, aggregators, checksum), "logged values"
            )
        return layout, rows

    def _agree_on_names(
        self, layout: _Layout, aggregators: Mapping[Key, MetricAggregator], checksums: list[float]
    ) -> None:
        """Gather the metrics of all ranks, and lay out a row with room for all of them."""
        for key, aggregator in aggregators.items():
            _require_reducible(key[2], aggregator)
        # plain data with which another rank can make an aggregator like this
        own_metrics = {
            key: (
                {
                    "call": aggregator.saved_call,
                    "suffix": aggregator.suffix,
                    "rank_zero_only": bool(aggregator.call[_RANK_ZERO_ONLY]),
                },
                aggregator.metric is not None,
            )
            for key, aggregator in aggregators.items()
        }
        gathered = self._processes.gather(own_metrics)
        # reversed: of different descriptions that of the lowest rank counts
        union = {key: metric for of_rank in reversed(gathered) for key, metric in of_rank.items()}
        layout.known, layout.keys = checksums, sorted(union)
        layout.descriptions = {key: description for key, (description, _) in union.items()}
        layout.objects = frozenset(key for key, (_, is_object) in union.items() if is_object)
        # of the union, which is the same on all ranks: a collective needs rows of one length
        layout.room = max(layout.room, _HEAD + _CELLS * len(layout.keys))
        for key, (description, _) in union.items():
            ranks = [rank for rank, of_rank in enumerate(gathered) if key in of_rank]
            # a rank whose shard of a loader is empty logs nothing at all for that loader
            missing_ranks = [
                rank
                for rank, of_rank in enumerate(gathered)
                if key not in of_rank and any(other[:2] == key[:2] for other in of_rank)
            ]
            if missing_ranks and not description["rank_zero_only"]:
                self._warn_missing(key[2], list(map(str, ranks)))

    def _warn_missing(self, name: str, ranks: list[str]) -> None:
        """Warn once that only some ranks logged a name."""
        if name in self._warned_names:
            return
        self._warned_names.add(name)
        warn(
            f"log({name!r}) was called in rank {', '.join(ranks)} and not in the others: their "
            "values are left out of it. Log it in all processes, or pass rank_zero_only=True.",
            TrainerHooksWarning,
        )

    def _reduce_objects(
        self, store: MetricStore, aggregators: Mapping[Key, MetricAggregator], layout: _Layout
    ) -> None:
        """Let metric objects compute over the states of all ranks, in one exchange."""
        own_states: dict[Key, Any] = {
            key: aggregators[key].object_state()
            for key in sorted(layout.objects)
            if key in aggregators and is_metric_object(aggregators[key].metric)
        }
        # those inside a wrapper exchange their states themselves, as it computes its value
        states = {key: {"": own_state[""]} for key, own_state in own_states.items()}
        # of an object without states that could be merged, rank 0's value counts
        values = {
            key: aggregators[key].local_value()
            for key in sorted(layout.objects)
            if key in aggregators and key not in states
        }
        gathered = self._processes.gather((states, values))
        computed: dict[Key, Tensor] = {}
        for key in sorted(layout.objects):
            parts = [of_rank[0][key] for of_rank in gathered if key in of_rank[0]]
            if key in own_states:
                metric = aggregators[key].metric
                with holding_state(metric, own_states[key] | merge_object_states(metric, parts)):
                    computed[key] = scalar(key[2], metric.compute(), "a metric object")
            elif not parts:
                computed[key] = next(of_rank[1][key] for of_rank in gathered if key in of_rank[1])
        # a rank without the object cannot compute its value, and takes rank 0's
        if any(len(of_rank[0]) < len(gathered[0][0]) for of_rank in gathered):
            computed = {**self._processes.broadcast(computed), **computed}
        for key, value in computed.items():
            aggregator = store.aggregator_at(*key)
            if aggregator is not None:
                aggregator.shared = value


def _row(layout: _Layout, aggregators: Mapping[Key, MetricAggregator], checksum: float) -> Tensor:
    """Return this rank's row: the checksum of its names, then the cells of each metric."""
    # zeros up to the end: all ranks must send equally many numbers
    row = torch.zeros(layout.room, dtype=torch.float64)
    row[0] = checksum
    numbers: list[float] = []
    for key in layout.keys:
        aggregator = aggregators.get(key)
        if aggregator is not None and key not in layout.objects:
            numbers += [*aggregator.own_total_and_weight(), 1.0]
        else:
            numbers += [0.0, 0.0, 0.0]
    if numbers:
        row[_HEAD : _HEAD + len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
    return row


def _reduce_cells(aggregator: MetricAggregator, cells: Tensor) -> Tensor | None:
    """Return a metric's value over the ranks; None if no rank has one.

    Args:
        aggregator: the metric.
        cells: for each rank its total, its weight and whether it has a value; shape (ranks, 3).
    """
    present = cells[cells[:, 2] > 0]
    if not len(present):
        return None
    if not aggregator.is_synced:
        # without `sync_dist`: the lowest rank that has a value
        present = present[:1]
    totals, weights, reduce_fx = present[:, 0], present[:, 1], aggregator.reduce_fx
    if reduce_fx == "mean":  # the totals are sums with weights already
        return (totals.sum() / weights.sum()).to(torch.float32)
    # a function cannot be logged with `sync_dist`, so one rank's value is left here
    return reduce_values("sum" if callable(reduce_fx) else reduce_fx, totals).to(torch.float32)


def _require_reducible(name: str, aggregator: MetricAggregator) -> None:
    """Make sure that a metric can be reduced over the ranks.

    Raises:
        MetricError: `sync_dist` with a function, or with an object whose states cannot be merged.
    """
    if not aggregator.is_synced:
        return
    if aggregator.metric is not None:
        if not hasattr(aggregator.metric, "metric_state"):
            raise MetricError(
                f"log({name!r}, sync_dist=True) was given a "
                f"{type(aggregator.metric).__qualname__}, which does not say how its states are "
                "merged: use a metric of torchmetrics, or log without sync_dist."
            )
    elif callable(aggregator.reduce_fx):
        raise MetricError(
            f"log({name!r}, sync_dist=True, reduce_fx=a function): the values of several processes "
            "are reduced by 'mean', 'sum', 'min' or 'max'. Use one of them, or log without "
            "sync_dist."
        )
