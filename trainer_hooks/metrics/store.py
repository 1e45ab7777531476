"""MetricStore: every logged value of a run, collected by `log` and reduced when it is due."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, TrainerHooksWarning, did_you_mean
from trainer_hooks.metrics.aggregator import (
    FOR_LOGGERS,
    FOR_READERS,
    Metric,
    MetricAggregator,
    unknown,
)
from trainer_hooks.metrics.loader_objects import LoaderObjects
from trainer_hooks.metrics.scalars import floats, in_one_piece, number
from trainer_hooks.runtime.nested_tensors import first_tensor, leading_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_DEFAULTS = {
    "prog_bar": False,
    "logger": None,
    "on_step": None,
    "on_epoch": None,
    "reduce_fx": "mean",
    "add_dataloader_idx": True,
    "sync_dist": False,
    "rank_zero_only": False,
    "enable_graph": False,
}
"""The arguments of `log` that must stay the same for a name, with their defaults.

They are in the order of the tuple that `Module.log` packs.
"""

_REDUCE_FX, _ENABLE_GRAPH, _ADD_LOADER_INDEX = map(
    tuple(_DEFAULTS).index, ("reduce_fx", "enable_graph", "add_dataloader_idx")
)


class LogScope(Enum):
    """The part of a run from which `log` is called; it decides the defaults of its arguments."""

    CLOSED = "a place outside training and evaluation"
    TRAIN_BATCH = "a training batch"
    TRAIN_EPOCH = "the start or end of a training epoch"
    EVALUATION = "a validation or test batch"
    EVALUATION_EPOCH = "the start or end of validation or test"
    PREDICTION = "prediction"

    @property
    def family(self) -> tuple[LogScope, ...]:
        """The scopes whose values are reduced together at the end of an epoch."""
        if self in (LogScope.TRAIN_BATCH, LogScope.TRAIN_EPOCH):
            return (LogScope.TRAIN_BATCH, LogScope.TRAIN_EPOCH)
        return (LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)


_BATCH_SCOPES = (LogScope.TRAIN_BATCH, LogScope.EVALUATION)
"""The scopes inside a batch, where single values can be logged by step."""


class _RankReducer(Protocol):
    """The part of `rank_reduction.RankReducer` that the store uses; one rank does not load it."""

    def disable_own_sync(self, metric: Any) -> None: ...

    def reduce_epoch(self, store: Any, scopes: tuple[LogScope, ...]) -> None: ...

    def reduce_steps(self, store: Any) -> None: ...


class LatestMetrics(dict[str, "Tensor"]):
    """The latest values by name; an error about another name says which there are."""

    def __missing__(self, name: str) -> Tensor:
        names = ", ".join(map(repr, sorted(self)))
        logged = f"It has logged {names}" if names else "It has logged nothing"
        raise KeyError(f"no metric {name!r} of the last run. {logged}.{did_you_mean(name, self)}")


class MetricStore:
    """The values that `log` collects, and their reductions for callbacks, loggers and bars.

    `log` runs in every step, so it copies nothing from the device to the host: values are kept on
    their device, and readers are brought up to date when they read.

    Attributes:
        scope: the scope from which `log` is called now.
        batch: the current batch, whose size is the weight of a value if `log` has none.
        prefix: put before the names of metrics that are logged now.
        rank_reducer: reduces values over the ranks; None with one rank.
        shares_steps: whether some rank logged a single value that must be reduced over the ranks.
        evaluated: number of batches that each evaluation loader has yielded: the x axis of their
            values.
    """

    def __init__(self) -> None:
        self.scope = LogScope.CLOSED
        self.batch: Any = None
        self.prefix = ""
        self.rank_reducer: _RankReducer | None = None
        self.shares_steps = False
        self.evaluated: dict[str, int] = {}
        self._callback: dict[str, Tensor] = LatestMetrics()
        self._logged: dict[str, Tensor] = {}
        self._bar: dict[str, Tensor] = {}
        self._tables: dict[tuple[LogScope, int], dict[str, MetricAggregator]] = {}
        self._current: dict[str, MetricAggregator] = {}
        # `closed` exchanges `_current`; this stays, so that readers inside it get the values
        self._entered: tuple[LogScope, dict[str, MetricAggregator]] = (self.scope, self._current)
        self._objects = LoaderObjects()
        self._suffix = ""
        self._keeps: Callable[[str], bool] | None = None
        self._is_held = self._hides_loaders = False
        self._sized_batch: Any = None
        self._table = (self.scope, 0)
        self._first_sizes: dict[tuple[LogScope, int], tuple[int, ...]] = {}
        self._settled_sizes: set[tuple[LogScope, int]] = set()
        self._are_sizes_settled = False
        self._size = 1

    # --- collecting ---

    def enter(
        self,
        scope: LogScope,
        dataloader_idx: int = 0,
        *,
        suffix: str = "",
        is_held: bool = False,
        keeps: Callable[[str], bool] | None = None,
        publishes: bool = True,
    ) -> None:
        """Set the scope from which `log` is called from now on.

        Args:
            scope: the scope.
            dataloader_idx: the evaluation loader's number; each loader has values of its own.
            suffix: added to names to distinguish several loaders.
            is_held: whether no reader sees the values before the epoch's end.
            keeps: returns whether values of a name are kept; values of other names are dropped.
            publishes: whether readers get the values of the scope that is left. If not, they get
                them as soon as it is entered again.
        """
        if scope in _BATCH_SCOPES and self._entered[0] not in _BATCH_SCOPES:
            # as in Lightning: what the hooks of the start have logged is read from the epoch's end
            # on, unless one of them has read it
            for aggregator in self._aggregators_of(scope.family[1]):
                aggregator.unread &= ~FOR_READERS
        if publishes:
            # of the scope that is left, before its table is out of reach
            self._publish_unread()
        self._is_held = is_held
        self.scope = scope
        self.batch = None
        self._suffix = suffix
        self._keeps = keeps
        if scope is LogScope.EVALUATION:
            self._objects.begin_loader()
        self._current = self._tables.setdefault((scope, dataloader_idx), {})
        self._table = (scope, dataloader_idx)
        self._are_sizes_settled = self._table in self._settled_sizes
        self._entered = (scope, self._current)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Refuse `log` in the `with` block, as in hooks that may fire at any moment."""
        # the table is empty too: in the scope's own table `log` would accept a known name
        before, self.scope, self._current = (self.scope, self._current), LogScope.CLOSED, {}
        try:
            yield
        finally:
            self.scope, self._current = before

    def log(
        self, name: str, value: Any, call: tuple[Any, ...], batch_size: int | None = None
    ) -> None:
        """Add one value.

        Args:
            name: the metric's name.
            value: a number, a tensor with one element, or a metric object.
            call: `log`'s other arguments, in the order of `_DEFAULTS`.
            batch_size: the weight in the mean, in samples; None for the size of the batch.

        Raises:
            MetricError: `log` may not be called here, the value is of another type, or the name was
                logged with other arguments before.
        """
        # the fast path of every step: a known name with the same arguments goes on below
        aggregator = self._current.get(name)
        if aggregator is None or aggregator.call != call:
            aggregator = self._aggregator_for(name, call)
        if batch_size is None:
            batch_size = 1
            if aggregator.is_weighted:
                # looked for once a batch: it searches nested containers for a tensor
                if self._sized_batch is not self.batch:
                    tensor = first_tensor(self.batch)
                    self._size = 1 if tensor is None else tensor.size(0)
                    self._sized_batch = self.batch
                    if not self._are_sizes_settled:
                        self._compare_sizes()
                batch_size = self._size
        if isinstance(value, Tensor):
            if call[_ENABLE_GRAPH]:
                aggregator.add_attached(value, batch_size)
            else:
                aggregator.add(value, batch_size)
        elif isinstance(value, int | float):
            aggregator.add_number(float(value), batch_size)
        # after the numbers: `isinstance` with a protocol looks each method up, which is slow
        elif isinstance(value, Metric):
            if self.rank_reducer is not None:
                self.rank_reducer.disable_own_sync(value)
            aggregator.add_metric(value)
        else:
            aggregator.add_number(number(aggregator.name, value), batch_size)

    def _compare_sizes(self) -> None:
        """Warn once if the weight in a mean may be wrong: a batch's tensors disagree, and change.

        Where the tensors of a loader's first batch agree, no later batch is looked at.
        """
        sizes = leading_sizes(self.batch)
        first = self._first_sizes.setdefault(self._table, sizes)
        if len(set(sizes)) > 1 and sizes == first:
            return
        self._are_sizes_settled = True
        self._settled_sizes.add(self._table)
        if sizes != first:
            disagreeing = dict.fromkeys(sizes if len(set(sizes)) > 1 else first)
            distinct = ", ".join(map(str, disagreeing))
            warn(
                f"the first dimensions of the tensors in a batch disagree ({distinct}), and are "
                "others in other batches: a mean over batches weights each by that of its first "
                f"tensor ({self._size}). Pass log(..., batch_size=...).",
                TrainerHooksWarning,
            )

    def _aggregator_for(self, name: str, call: tuple[Any, ...]) -> MetricAggregator:
        """Return the aggregator of a name that is new here, or that has other arguments now."""
        present = self._current.get(name)
        if present is not None and not present.is_waiting:
            _require_same_call(present, call, self.scope)
            return present
        others = [
            other for other in self._aggregators_of(*self.scope.family) if other is not present
        ]
        if self.scope is LogScope.EVALUATION and self._suffix and not call[_ADD_LOADER_INDEX]:
            self._require_own_name(name)
        made = _new_aggregator(name, call, self.scope, self._suffix, others, self.prefix)
        if present is not None:
            # restored from a checkpoint, and this is the first `log` since
            made.continue_from(present)
        if self._keeps is not None and not self._keeps(name):
            made.mute()
        # also if muted, so that the next `log` of the name takes the fast path
        self._current[name] = made
        return made

    def _require_own_name(self, name: str) -> None:
        """Require that no other evaluation loader logs a name that has no number of a loader.

        Raises:
            MetricError: another one does.
        """
        of_others = [
            aggregators.get(name)
            for (scope, _), aggregators in self._tables.items()
            if scope is LogScope.EVALUATION and aggregators is not self._current
        ]
        if any(other is not None and not other.suffix for other in of_others):
            raise MetricError(
                f"log({name!r}, add_dataloader_idx=False) was called for several evaluation "
                "loaders: the value of one would hide that of another. Leave add_dataloader_idx "
                "out, or give each loader's value a name of its own."
            )

    # --- aggregators ---

    def current_aggregators(self) -> list[MetricAggregator]:
        """Return the aggregators of the present scope and loader."""
        return list(self._current.values())

    def aggregators_by_scope(
        self, scopes: Sequence[LogScope]
    ) -> Iterator[tuple[LogScope, int, str, MetricAggregator]]:
        """Yield scope, loader index, name and aggregator of each metric logged in `scopes`."""
        # copies: the caller may add aggregators of other ranks meanwhile
        for (scope, index), aggregators in list(self._tables.items()):
            if scope in scopes:
                for name, aggregator in list(aggregators.items()):
                    yield scope, index, name, aggregator

    def aggregator_at(self, scope: str, index: int, name: str) -> MetricAggregator | None:
        """Return the aggregator of a name, by the name of its scope and the loader's index."""
        if scope not in LogScope.__members__:
            return None
        return self._tables.get((LogScope[scope], index), {}).get(name)

    def add_aggregator(
        self, scope: str, index: int, name: str, call: tuple[Any, ...], suffix: str
    ) -> None:
        """Add an aggregator for a metric that another rank logs."""
        log_scope = LogScope[scope]
        others = self._aggregators_of(*log_scope.family)
        made = _new_aggregator(name, call, log_scope, suffix, others, self.prefix)
        self._tables.setdefault((log_scope, index), {})[name] = made

    def _aggregators_of(self, *scopes: LogScope) -> list[MetricAggregator]:
        return [
            aggregator
            for (scope, _), aggregators in self._tables.items()
            if scope in scopes
            for aggregator in aggregators.values()
        ]

    # --- reading ---

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The latest value of every metric, as 0-dim tensors; may be written to."""
        self._publish_unread()
        return self._callback

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        """The latest values for loggers, under the names that loggers receive."""
        self._publish_unread()
        return self._logged

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The latest values for a progress bar; reading copies them from the device."""
        self._publish_unread()
        return floats(self._bar)

    def step_metrics(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the step values that the loggers do not have yet, and mark them as passed on.

        Returns:
            Those for the loggers, and those that were logged with `logger=False`.
        """
        for_loggers: dict[str, Tensor] = {}
        others: dict[str, Tensor] = {}
        # the ranks have agreed on `shares_steps`, so that all of them enter the collective or none;
        # not in an evaluation, where one may have fewer batches than another, or none
        is_shared = self.shares_steps and self.scope is LogScope.TRAIN_BATCH
        if self.rank_reducer is not None and is_shared:
            self.shares_steps = False
            self.rank_reducer.reduce_steps(self)
        for aggregator in self._current.values():
            if aggregator.on_step and aggregator.unread & FOR_LOGGERS:
                aggregator.unread &= ~FOR_LOGGERS
                value = aggregator.value
                if value is not None:
                    (for_loggers if aggregator.logger else others)[aggregator.step_key] = value
        return for_loggers, others

    def epoch_values(self, scope: LogScope, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Return the present reductions of one evaluation loader, those for loggers."""
        aggregators = self._tables.get((scope, dataloader_idx), {}).values()
        return {
            aggregator.epoch_key: aggregator.reduce()
            for aggregator in aggregators
            if aggregator.on_epoch and aggregator.logger and aggregator.has_values
        }

    def show(self, name: str, value: Tensor | float) -> None:
        """Put a value that a callback added to the history into `callback_metrics`."""
        self.callback_metrics[name] = torch.as_tensor(value).reshape(())

    def record_logged(self, metrics: Mapping[str, Any]) -> None:
        """Put the values that `Trainer.log_metrics` passes to the loggers into `logged_metrics`."""
        self.logged_metrics.update({k: torch.as_tensor(v) for k, v in metrics.items()})

    def count_evaluated(self, loader: str) -> int:
        """Count a batch of an evaluation loader; return how many came before it.

        Args:
            loader: a name of the loader that no other has.
        """
        count = self.evaluated.get(loader, 0)
        self.evaluated[loader] = count + 1
        return count

    # --- epochs ---

    # an epoch ends in three moments: `publish_reductions`, for callbacks that read metrics in the
    # hooks of the epoch's end; `reduce_over_ranks`, after what those hooks have logged; and
    # `reduce_and_reset`, which hands the values on to the loggers and begins a new epoch

    def publish_reductions(self, *scopes: LogScope) -> None:
        """Put the reductions of the epoch so far where callbacks read them; the values stay."""
        self._publish_unread()
        if self.rank_reducer is not None:
            # the whole family: evaluation loaders were left for this exchange of the ranks
            scopes = scopes[0].family
            self.rank_reducer.reduce_epoch(self, scopes)
        hidden = self._hidden_aggregators()
        for aggregator in self._aggregators_of(*scopes):
            if aggregator in hidden:
                continue
            if aggregator.on_epoch and aggregator.has_values and not aggregator.is_lost:
                self._publish(aggregator, aggregator.epoch_key, aggregator.reduce())

    def publish_loader_reductions(self, dataloader_idx: int) -> None:
        """Put the reductions of one completed evaluation loader where callbacks read them."""
        aggregators = self._tables.get((LogScope.EVALUATION, dataloader_idx), {}).values()
        # first: a name without a loader's number has the value of its object over all loaders
        self._objects.end_loader(aggregators, computes=self.rank_reducer is None)
        if self.rank_reducer is not None:
            return  # the ranks reduce all loaders in one exchange, at the end of the evaluation
        self._publish_unread()
        if self._hides_loaders:
            return
        for aggregator in aggregators:
            if aggregator.on_epoch and aggregator.has_values:
                self._publish(aggregator, aggregator.epoch_key, aggregator.reduce())

    def reduce_over_ranks(self, *scopes: LogScope) -> None:
        """Reduce the epoch's values over all ranks; with one rank do nothing."""
        if self.rank_reducer is not None:
            self.rank_reducer.reduce_epoch(self, scopes)

    def reduce_and_reset(self, *scopes: LogScope) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the epoch's reductions for the loggers, publish them, and clear the values.

        Returns:
            The reductions for the loggers, and those that were logged with `logger=False`.
        """
        for_loggers: dict[str, Tensor] = {}
        others: dict[str, Tensor] = {}
        self._publish_unread()
        aggregators, hidden = self._aggregators_of(*scopes), self._hidden_aggregators()
        for aggregator in aggregators:
            if aggregator.is_lost:
                warn(
                    f"log({aggregator.name!r}, reduce_fx=a function) was not called in this epoch "
                    "after the resume, and the function cannot be saved: the values from before "
                    "are left out. Log it in every batch, or reduce with 'mean', 'sum', 'min' or "
                    "'max'.",
                    TrainerHooksWarning,
                )
            elif aggregator.on_epoch and aggregator.has_values:
                value = aggregator.reduce()
                if aggregator not in hidden:
                    self._publish(aggregator, aggregator.epoch_key, value)
                (for_loggers if aggregator.logger else others)[aggregator.epoch_key] = value
        # after all are reduced: one metric object may be logged under several names, and a reset
        # clears it for all of them
        for aggregator in aggregators:
            aggregator.reset()
        if LogScope.EVALUATION in scopes:
            self._objects = LoaderObjects()
        return for_loggers, others

    def _hidden_aggregators(self) -> list[MetricAggregator]:
        """Return the aggregators whose reductions no reader sees."""
        return self._aggregators_of(LogScope.EVALUATION) if self._hides_loaders else []

    def _publish_unread(self) -> None:
        """Put the values that are new since the last time where callbacks and bars read them."""
        scope, aggregators = self._entered
        if self._is_held:
            return
        for aggregator in aggregators.values():
            if not aggregator.unread & FOR_READERS:
                continue
            aggregator.unread &= ~FOR_READERS
            if scope not in _BATCH_SCOPES:
                if aggregator.has_values:
                    self._publish(aggregator, aggregator.epoch_key, aggregator.reduce())
                continue
            value = aggregator.value if aggregator.on_step else None
            if value is not None:
                # of an evaluation callbacks monitor the reductions alone
                is_monitored = scope is LogScope.TRAIN_BATCH
                self._publish(aggregator, aggregator.step_key, value, is_monitored)

    def _publish(
        self, aggregator: MetricAggregator, key: str, value: Tensor, is_monitored: bool = True
    ) -> None:
        """Put a value where loggers and bars read it, and callbacks if `is_monitored`."""
        if is_monitored:
            # under the plain name, too: callbacks monitor `loss`, and not `loss_epoch`
            self._callback[aggregator.name] = self._callback[key] = value
        if aggregator.logger:
            self._logged[key] = value
        if aggregator.prog_bar:
            self._bar[key] = value

    # --- runs ---

    def begin_run(self) -> None:
        """Forget the latest values and the evaluations of earlier runs."""
        self._publish_unread()
        # new dicts: a caller may hold those of the last run
        self._callback, self._logged, self._bar = LatestMetrics(), {}, {}
        self.drop(LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)

    def drop(self, *scopes: LogScope) -> None:
        """Forget the metrics of `scopes`, as after a sanity check."""
        for key in [key for key in self._tables if key[0] in scopes]:
            # reset too: a metric object of the module would keep the batches of the sanity check
            for aggregator in self._tables.pop(key).values():
                aggregator.reset()
        if LogScope.EVALUATION in scopes:
            self._objects = LoaderObjects()

    @contextmanager
    def isolated(self, *, hides_loaders: bool = False) -> Iterator[None]:
        """Undo at the end of the `with` block all changes by an evaluation inside it.

        Args:
            hides_loaders: whether no reader sees the reductions of its loaders.
        """
        before, evaluated = self.latest(), dict(self.evaluated)
        self._hides_loaders = hides_loaders
        try:
            yield
        finally:
            self._hides_loaders = False
            self._publish_unread()
            self.drop(LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)
            self.set_latest(before)
            self.evaluated = evaluated

    @contextmanager
    def prefixed(self, prefix: str) -> Iterator[None]:
        """Put `prefix` before the names of metrics that an evaluation in the `with` block logs.

        The metrics of earlier evaluations are put away meanwhile, as their arguments may differ.
        """
        scope, evaluations = self.scope, (LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)
        self._publish_unread()
        others = {key: self._tables.pop(key) for key in [*self._tables] if key[0] in evaluations}
        self.prefix = prefix
        try:
            yield
        finally:
            # first: it publishes what is unread, while the tables are still there
            self.enter(LogScope.CLOSED)
            self.drop(*evaluations)
            self._tables.update(others)
            self.prefix = ""
            self.enter(scope)

    def latest(self) -> list[dict[str, Tensor]]:
        """Return copies of the latest values of callbacks, loggers and bars."""
        return [dict(table) for table in self._latest_tables().values()]

    def set_latest(self, latest: list[dict[str, Tensor]]) -> None:
        """Restore latest values that `latest` returned."""
        for table, saved in zip(self._latest_tables().values(), latest, strict=True):
            # in place: a caller may hold the table
            table.clear()
            table.update(saved)

    # --- checkpoints ---

    def state_dict(self, find_parts: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the latest values, and the values of an unfinished training epoch.

        Args:
            find_parts: returns submodules and metric objects by name; a logged metric object is
                saved as the name that it has there.
        """
        aggregators = [
            (scope, name, aggregator)
            for (scope, _), table in self._tables.items()
            if scope in (LogScope.TRAIN_BATCH, LogScope.TRAIN_EPOCH)
            for name, aggregator in table.items()
        ]
        # most runs log no metric objects, and searching for them takes a third of this
        has_metrics = any(aggregator.metric is not None for _, _, aggregator in aggregators)
        names = {id(part): name for name, part in find_parts().items()} if has_metrics else {}
        # as_tensor: users may have written plain numbers into `callback_metrics`
        latest = {
            table_name: in_one_piece({k: torch.as_tensor(v).detach() for k, v in table.items()})
            for table_name, table in self._latest_tables().items()
        }
        return {
            **latest,
            "on_device": {
                table_name: [k for k, v in table.items() if v.device.type != "cpu"]
                for table_name, table in latest.items()
            },
            "epoch": [
                {
                    "scope": scope.name,
                    "name": name,
                    "call": aggregator.saved_call,
                    "metric": names.get(id(aggregator.metric)),
                    "has_metric": aggregator.metric is not None,
                    **aggregator.state_dict(),
                }
                for scope, name, aggregator in aggregators
            ],
        }

    def load_state_dict(
        self, state_dict: dict[str, Any], parts: Mapping[str, Any], device: torch.device
    ) -> None:
        """Restore the values that `state_dict` returned.

        Args:
            state_dict: the state.
            parts: submodules and metric objects by name.
            device: the device for values that were not on the CPU.
        """
        for table_name, table in self._latest_tables().items():
            on_device = set(state_dict["on_device"][table_name])
            # it raises for values that a later save would fail on
            saved = in_one_piece({k: torch.as_tensor(v) for k, v in state_dict[table_name].items()})
            table.clear()
            table.update({k: v.to(device) if k in on_device else v for k, v in saved.items()})
        # a fit enters the epoch first: the order of scopes is the order of values for loggers
        self.enter(LogScope.TRAIN_EPOCH)
        for item in state_dict["epoch"]:
            self.enter(LogScope[item["scope"]])
            # the first batch of the epoch told whether later ones are compared
            self._settled_sizes.add(self._table)
            aggregator = self._aggregator_for(item["name"], restored_call(item["call"]))
            aggregator.load_state_dict(item, device)
            if item["metric"] is not None:
                # after the load, whose reset would clear the metric object
                aggregator.metric = parts.get(item["metric"])
        self.enter(LogScope.CLOSED)

    def _latest_tables(self) -> dict[str, dict[str, Tensor]]:
        """Return the tables of latest values, up to date, by the names they have in checkpoints."""
        self._publish_unread()
        return {
            "callback_metrics": self._callback,
            "logged_metrics": self._logged,
            "bar": self._bar,
        }


class MutedMetrics:
    """The replacement of a `MetricStore` under `barebones=True`: drops values, with one warning."""

    def __init__(self) -> None:
        self._has_warned = False

    def log(self, name: str, value: Any, call: Any, batch_size: int | None) -> None:  # noqa: ARG002
        """Drop a value."""
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"log({name!r}) was called under Trainer(barebones=True), where nothing is logged: "
                "the values are dropped, here and from now on. Leave barebones out to have them.",
                TrainerHooksWarning,
            )


def _new_aggregator(
    name: str,
    call: tuple[Any, ...],
    scope: LogScope,
    suffix: str,
    others: Iterable[MetricAggregator],
    prefix: str = "",
) -> MetricAggregator:
    """Return an aggregator for a name that is logged for the first time in a scope.

    Args:
        name: the name.
        call: prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx, sync_dist,
            rank_zero_only, enable_graph.
        scope: the scope.
        suffix: added to names to distinguish several loaders.
        others: the aggregators of the scope's family, which may have the same name.
        prefix: put before names to distinguish several evaluations.

    Raises:
        MetricError: `log` may not be called in the scope, or not with these arguments.
    """
    prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx = call[:6]
    if scope in (LogScope.CLOSED, LogScope.PREDICTION):
        raise MetricError(
            f"log({name!r}) was called in {scope.value}, where it has no meaning: call it "
            "from a training, validation or test step, or a hook of their batches or epochs."
        )
    if not isinstance(name, str):
        raise MetricError(f"log({name!r}): the name must be a string.")
    if add_dataloader_idx and "/dataloader_idx_" in name:
        raise MetricError(
            f"log({name!r}): '/dataloader_idx_N' is added to the name where there are several "
            "loaders. Leave it out, or pass add_dataloader_idx=False."
        )
    if on_step and scope not in _BATCH_SCOPES:
        raise MetricError(
            f"log({name!r}, on_step=True) was called in {scope.value}: there is no step "
            "there. Leave on_step out."
        )
    in_batch = scope is LogScope.TRAIN_BATCH
    on_step = in_batch if on_step is None else on_step
    on_epoch = not in_batch if on_epoch is None else on_epoch
    if not on_step and not on_epoch:
        raise MetricError(
            f"log({name!r}) with on_step=False and on_epoch=False in {scope.value}: the "
            "value would go nowhere. Set one of them to True; in a training batch on_epoch is "
            "False unless said."
        )
    if isinstance(reduce_fx, str):
        reduce_fx = reduce_fx.lower()
    aggregator = MetricAggregator(
        prefix + name,
        call,
        reduce_fx=reduce_fx,
        on_step=bool(on_step),
        on_epoch=bool(on_epoch),
        prog_bar=prog_bar,
        logger=logger is not False,
        suffix=suffix if add_dataloader_idx else "",
    )
    for other in others:
        _require_same_reduction(aggregator, other)
    return aggregator


def _require_same_call(
    aggregator: MetricAggregator, call: tuple[Any, ...], scope: LogScope
) -> None:
    """Make sure that a name is logged with the same arguments as the first time.

    Raises:
        MetricError: it is not; the message says which argument changed.
    """
    changes = [
        f"{argument} was {before!r} and is {now!r}"
        for argument, before, now in zip(_DEFAULTS, aggregator.call, call, strict=False)
        # a lambda in a step is a new function each time, but the same code
        if before != now and getattr(before, "__code__", None) is not getattr(now, "__code__", 0)
    ]
    if changes:
        raise MetricError(
            f"log({aggregator.name!r}) was called with other arguments than before in "
            f"{scope.value}: {'; '.join(changes)}. They must stay the same. Log the other under a "
            "name of its own."
        )


def restored_call(saved: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of `log` from a checkpoint, where older ones hold fewer of them."""
    call = [*saved, *list(_DEFAULTS.values())[len(saved) :]]
    # compared at each call of `log`
    if not all(argument is None or isinstance(argument, bool | str) for argument in call):
        raise TypeError(f"arguments of log: {call!r}")
    call[_REDUCE_FX] = call[_REDUCE_FX] or unknown
    return tuple(call)


def _require_same_reduction(aggregator: MetricAggregator, other: MetricAggregator) -> None:
    """Make sure that the values of one name in one epoch are not reduced in two ways."""
    if aggregator.name != other.name or not (aggregator.on_epoch and other.on_epoch):
        return
    reductions = [metric.reduce_fx for metric in (other, aggregator)]
    if unknown in reductions or reductions[0] == reductions[1]:
        return
    if getattr(reductions[0], "__code__", None) is getattr(reductions[1], "__code__", 0):
        return
    raise MetricError(
        f"log({aggregator.name!r}, reduce_fx={aggregator.reduce_fx!r}) was called in an epoch in "
        f"which {aggregator.name!r} is also logged with reduce_fx={other.reduce_fx!r}: one would "
        "hide the other. Log it under a name of its own."
    )
