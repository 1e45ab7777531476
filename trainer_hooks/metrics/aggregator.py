"""MetricAggregator: the values that were logged under one name in an epoch, and their reduction."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.metric_objects import object_state
from trainer_hooks.metrics.scalars import scalar, single

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 64
"""Values that are collected and then reduced together: one kernel, not one for each value."""

FOR_LOGGERS = 1
"""Flag of `MetricAggregator.unread`: the loggers do not have the last value yet."""
FOR_READERS = 2
"""Flag of `MetricAggregator.unread`: callbacks and the progress bar do not have it yet."""
FOR_BATCH = 4
"""Flag of `MetricAggregator.unread`: `MicrobatchValues` has not taken it yet.

`add` and `add_number` set it, with or without microbatches; only that class reads it.
"""
_UNREAD = FOR_LOGGERS | FOR_READERS | FOR_BATCH

_REDUCTIONS = ("mean", "sum", "min", "max")
_FUNCTIONS = {torch.mean: "mean", torch.sum: "sum", torch.min: "min", torch.max: "max"}
_SYNC_DIST = 6
"""Position in the arguments of `log`, as `MetricStore.log` takes them."""


@runtime_checkable
class Metric(Protocol):
    """A metric object that keeps its own state, as those of torchmetrics do."""

    def compute(self) -> Any:
        """Return the value over all batches since the last reset."""

    def reset(self) -> None:
        """Forget all batches."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch."""


class MetricAggregator:
    """Aggregate the values of one metric over an epoch, and keep the last one.

    A value is copied into memory of the aggregator, since it may change in place after it was
    logged. That memory is reused, so that readers receive a copy of it.

    Args:
        name: the name in `log`, without suffix.
        call: the other arguments of `log`, as `MetricStore.log` takes them.
        reduce_fx: `"mean"` (weighted by batch size), `"sum"`, `"min"`, `"max"`, or a function of
            the tensor of all values.
        on_step: whether single values go to loggers, callbacks and the bar.
        on_epoch: whether the epoch's reduction does.
        prog_bar: whether the progress bar shows the metric.
        logger: whether loggers receive the metric.
        suffix: distinguishes several loaders; it comes after `_step` and `_epoch`.

    Attributes:
        name: the name with its suffix.
        reduce_fx: the reduction; one of the four names, or a function.
        unread: who did not receive the last value yet: a sum of the flags `FOR_...`.
        call: the arguments of `log` at the first call.
        metric: the metric object that was logged, or None.
        is_weighted: whether the reduction depends on the weights of values.
        step_key: the name of single values.
        epoch_key: the name of the epoch's reduction.
        shared: the epoch's reduction over all ranks, once they have computed it, or a metric
            object's over a completed loader; else None.
        loader_state: the metric object's state over a completed evaluation loader, if the object
            goes on to the next one; else None.
    """

    __slots__ = (
        "_attached", "_cells", "_chunks", "_collects", "_count", "_dtype", "_latest", "_on_cpu",
        "_reduced", "_rows", "_total", "_weight", "_weights", "call", "epoch_key", "is_weighted",
        "loader_state", "logger", "metric", "name", "on_epoch", "on_step", "prog_bar", "reduce_fx",
        "shared", "step_key", "suffix", "unread",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        call: tuple[Any, ...],
        *,
        reduce_fx: str | Callable[[Tensor], Tensor] = "mean",
        on_step: bool = False,
        on_epoch: bool = True,
        prog_bar: bool = False,
        logger: bool = True,
        suffix: str = "",
    ) -> None:
        # Lightning accepts it for the mean
        if reduce_fx == "avg":
            reduce_fx = "mean"
        elif callable(reduce_fx):
            reduce_fx = _FUNCTIONS.get(reduce_fx, reduce_fx)
        if not callable(reduce_fx) and reduce_fx not in _REDUCTIONS:
            raise MetricError(
                f"log({name!r}, reduce_fx={reduce_fx!r}): must be one of {', '.join(_REDUCTIONS)}, "
                "or a function that takes the tensor of all values."
            )
        self.name = name + suffix
        self.call = call
        self.reduce_fx = reduce_fx
        self.on_step = on_step
        self.on_epoch = on_epoch
        self.prog_bar = prog_bar
        self.logger = logger
        self.suffix = suffix
        self.is_weighted = on_epoch and reduce_fx == "mean"
        is_forked = on_step and on_epoch
        self.step_key = f"{name}_step{suffix}" if is_forked else self.name
        self.epoch_key = f"{name}_epoch{suffix}" if is_forked else self.name
        self.metric: Any = None
        self.shared: Tensor | None = None
        self.loader_state: dict[str, dict[str, Any]] | None = None
        self.unread = 0
        self._collects = on_epoch
        self._latest: Tensor | float | None = None
        self._attached: Tensor | None = None
        # `_rows`: the values since the last `_fold`, a 1-D tensor with room for CHUNK of them (for
        # one without `on_epoch`); the first `_count` are set. `_cells`: a view of each of its
        # elements. `_fold` moves the values on: into `_total`, their reduction so far (for a mean
        # the weighted sum), or into `_chunks`, copies of all of them, for a `reduce_fx` function
        self._rows: Tensor | None = None
        self._cells: tuple[Tensor, ...] | None = None
        self._dtype: torch.dtype | None = None
        self._on_cpu = True
        self._count = 0
        self._weights: list[int] = []
        self._chunks: list[Tensor] = []
        self._total: Tensor | None = None
        self._weight = 0
        self._reduced: Tensor | None = None

    # --- adding values ---

    def add(self, value: Tensor, weight: int) -> None:
        """Add a tensor with one element.

        Args:
            value: the tensor.
            weight: its weight in a mean: the number of samples.

        Raises:
            MetricError: it has several elements, none, or is complex.
        """
        # the first branch is all that a step costs: no allocation, one copy on the device
        if value.dtype is self._dtype and value.is_cpu is self._on_cpu and not value.ndim:
            self._latest = cell = self._cells[self._count]  # type: ignore[index]
            # detached: torch refuses to copy a graph into views that were made without grad mode
            cell.copy_(value.detach())
        else:
            self._make_room(single(self.name, value))
            self._latest = cell = self._cells[self._count]  # type: ignore[index]
            cell.copy_(value.detach().reshape(()))
        self.unread = _UNREAD
        if self._collects:
            self._weights.append(weight)
            self._count += 1
            if self._count == CHUNK:
                self._fold()

    def add_attached(self, value: Tensor, weight: int) -> None:
        """Add a tensor and keep the last value with its autograd graph."""
        self.add(value, weight)
        # a clone keeps the graph, and is out of reach of in-place changes of the value
        self._attached = value.reshape(()).clone()

    def add_number(self, value: float, weight: int) -> None:
        """Add a number."""
        self._latest = value
        self.unread = _UNREAD
        if self._collects:
            if self._cells is None:
                # `_dtype` stays None: a tensor that follows must go through `_make_room`
                self._set_rows(torch.float64, torch.device("cpu"))
            self._cells[self._count].fill_(value)  # type: ignore[index]
            self._weights.append(weight)
            self._count += 1
            if self._count == CHUNK:
                self._fold()

    def add_metric(self, metric: Any) -> None:
        """Take a metric object, which aggregates the epoch's values itself.

        Raises:
            MetricError: it is a collection of several.
        """
        if hasattr(metric, "items"):
            raise MetricError(
                f"log({self.name!r}) was given a collection of metric objects: it must be one. "
                "Log all of them with log_dict."
            )
        self.metric = metric
        if self.on_step:
            self._latest = self.latest_of_metric()
        # not FOR_BATCH: the object combines the values of microbatches itself
        self.unread = FOR_LOGGERS | FOR_READERS

    def replace_last(self, value: Tensor) -> None:
        """Replace the last value, but not among the values of the epoch."""
        self._latest = value
        self._attached = None
        self.unread = FOR_LOGGERS | FOR_READERS

    def continue_from(self, other: MetricAggregator) -> None:
        """Take over the values of another aggregator of this name."""
        for name in (
            "_attached", "_cells", "_chunks", "_count", "_dtype", "_latest", "_on_cpu", "_rows",
            "_total", "_weight", "_weights", "unread",
        ):  # fmt: skip
            setattr(self, name, getattr(other, name))

    # --- reading ---

    @property
    def value(self) -> Tensor | None:
        """A copy of the last value, a 0-dim tensor on its device; None if nothing was logged."""
        if self._attached is not None:
            return self._attached
        if isinstance(self._latest, Tensor):
            if self._dtype is None or self._dtype.is_floating_point:
                return self._latest.clone()
            # whole numbers are kept in 64 bits, and shown in the type of Python's numbers
            return self._latest.to(torch.get_default_dtype(), copy=True)
        return None if self._latest is None else torch.tensor(self._latest)

    @property
    def has_values(self) -> bool:
        """Whether any rank logged a value since the epoch began."""
        return self.shared is not None or self.has_own_values

    @property
    def has_own_values(self) -> bool:
        """Whether this rank logged a value since the epoch began."""
        has_folded = self._total is not None or bool(self._chunks)
        return self._count > 0 or has_folded or self.metric is not None

    @property
    def is_synced(self) -> bool:
        """Whether the metric was logged with `sync_dist`."""
        return bool(self.call[_SYNC_DIST])

    @property
    def is_synced_by_step(self) -> bool:
        """Whether there is a new single value that must be reduced over the ranks."""
        return self.on_step and bool(self.unread & FOR_LOGGERS) and self.is_synced

    @property
    def is_waiting(self) -> bool:
        """Whether it is restored and waits for `log` to pass its `reduce_fx` function again."""
        return self.reduce_fx is unknown

    @property
    def is_lost(self) -> bool:
        """Whether it holds restored values that cannot be reduced."""
        return self.is_waiting and self._reduced is None and self.has_values

    @property
    def saved_call(self) -> list[Any]:
        """The arguments of `log` as plain data: None in place of a function."""
        return [None if callable(argument) else argument for argument in self.call]

    def reduce(self) -> Tensor:
        """Return the epoch's reduction so far, as a 0-dim tensor; the values stay.

        With several ranks it is the reduction over all of them, as they computed it last.
        """
        return self.local_value() if self.shared is None else self.shared

    def own_total_and_weight(self) -> tuple[float, float]:
        """Return the total and the weight of the values that this rank logged."""
        if callable(self.reduce_fx):
            return float(self.local_value()), 1.0
        total, weight = self._combined()
        return float(total), float(weight)

    def local_value(self) -> Tensor:
        """Return the reduction of the values that this rank logged."""
        if self.metric is not None:
            return scalar(self.name, self.metric.compute(), "a metric object")
        if self.is_waiting and self._reduced is not None:
            return self._reduced
        if not self.has_values:
            raise MetricError(f"nothing was logged under {self.name!r} in this epoch.")
        if callable(self.reduce_fx):
            return scalar(self.name, self.reduce_fx(self._all_values()), "a reduce_fx")
        total, weight = self._combined()
        if self.reduce_fx == "mean":
            # a tensor divided by a weight of 0, as of empty batches, is NaN and no error
            total = total / weight
        return total.to(torch.float32)

    def object_state(self) -> dict[str, dict[str, Any]]:
        """Return the state of the metric object, of a completed loader if it has gone on."""
        return object_state(self.metric) if self.loader_state is None else self.loader_state

    def latest_of_metric(self) -> Tensor:
        """Return the metric object's value for the last batch, or for the epoch so far."""
        # torchmetrics keeps the value of the last `forward` here for exactly this use
        latest = getattr(self.metric, "_forward_cache", None)
        latest = self.metric.compute() if latest is None else latest
        return scalar(self.name, latest, "a metric object").clone()

    # --- epochs and checkpoints ---

    def reset(self) -> None:
        """Begin a new epoch."""
        self._weights.clear()
        self._chunks.clear()
        self._count = 0
        self._total = None
        self._weight = 0
        self._reduced = self.shared = self.loader_state = None
        if self.metric is not None:
            # dropped too: it counts in an epoch only where it was logged in that epoch
            self.metric.reset()
            self.metric = None

    def mute(self) -> None:
        """Give no value to loggers, callbacks or the bar from now on."""
        self.on_step = self.on_epoch = self.logger = self.prog_bar = False

    def forget(self) -> None:
        """Begin a new epoch and forget the last value, too."""
        self.reset()
        self._latest = self._attached = None
        self.unread = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the values of the unfinished epoch as plain data and tensors."""
        reduced = self._reduced
        if self.reduce_fx is not unknown and any(map(callable, self.call)) and self.has_values:
            # a function cannot be saved, so its value so far is: a resumed run may not log the name
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    reduced = self.reduce()
            except Exception:  # noqa: BLE001 - it may need a whole epoch; `is_lost` reports the loss
                reduced = None
        value = self.value
        # a copy: the rows are written to again while the checkpoint waits to be written. One tensor
        # for all, as each tensor of a file costs as much as a hundred numbers
        rows = self._rows if self._count else None
        values: Tensor | list[Tensor] = [] if rows is None else rows[: self._count].clone()
        total = torch.cat(self._chunks) if self._chunks else self._total
        held = (value, total, values)
        return {
            "is_on_host": not any(isinstance(v, Tensor) and v.device.type != "cpu" for v in held),
            "value": None if value is None else value.detach(),
            "is_new": bool(self.unread & FOR_LOGGERS),
            "values": values,
            "weights": list(self._weights),
            "total": total,
            "weight": self._weight,
            "reduced": reduced,
        }

    def load_state_dict(self, state_dict: dict[str, Any], device: torch.device) -> None:
        """Restore the values of an unfinished epoch.

        Args:
            state_dict: the state that `state_dict` returned.
            device: the device for values that were not on the CPU.
        """

        def moved(value: Any) -> Any:
            if not (value is None or isinstance(value, Tensor)):
                raise TypeError(f"the value of {self.name!r} is a {type(value).__qualname__}")
            if value is not None and value.numel() != 1:
                raise ValueError(f"the value of {self.name!r} has the shape {tuple(value.shape)}")
            return value if value is None or state_dict["is_on_host"] else value.to(device)

        # a function needs every value, so its total is a tensor of all earlier ones
        is_of_all = self.is_waiting or callable(self.reduce_fx)
        total = state_dict["total"]
        if not is_of_all:
            total = moved(total)
        elif total is not None and not state_dict["is_on_host"]:
            total = total.to(device)
        self.reset()
        for value, weight in zip(state_dict["values"], state_dict["weights"], strict=True):
            self.add(moved(value), int(weight))
        self._total = None if is_of_all else total
        self._chunks = [total] if is_of_all and total is not None else []
        self._weight = int(state_dict["weight"])
        self._reduced = moved(state_dict["reduced"])
        # after the values, since adding them has set it
        self._latest = moved(state_dict["value"])
        self.unread = FOR_LOGGERS if state_dict["is_new"] else 0

    # --- memory ---

    def _combined(self) -> tuple[Tensor, int]:
        """Return the total, in the widest type, and the weight of all values of the epoch."""
        if self._count == 0:
            assert self._total is not None
            return self._total, self._weight
        assert self._rows is not None
        reduction = str(self.reduce_fx)
        rows, weights = self._rows[: self._count], self._weights
        # sums in the widest type, without a copy of the values in that type
        wide = _widest_type(rows.device)
        if reduction in ("min", "max"):
            part = getattr(rows, reduction)()
        # equal weights, the common case, need no tensor of weights on the device
        elif reduction == "sum" or weights.count(weights[0]) == len(weights):
            part = rows.sum(dtype=wide)
            part = part if reduction == "sum" else part * weights[0]
        else:
            part = (rows * torch.tensor(weights, dtype=wide, device=rows.device)).sum()
        if self._total is not None:
            combine = {"min": torch.minimum, "max": torch.maximum}.get(reduction, torch.add)
            part = combine(self._total, part)
        return part, self._weight + (sum(self._weights) if reduction == "mean" else 0)

    def _all_values(self) -> Tensor:
        """Return every value of the epoch, for a function; not on the CPU if some are not there."""
        parts = list(self._chunks)
        if self._count:
            assert self._rows is not None
            parts.append(self._rows[: self._count])
        device = next((p.device for p in parts if p.device.type != "cpu"), parts[0].device)
        wide = _widest_type(device)
        return torch.cat([part.to(device=device, dtype=wide) for part in parts])

    def _fold(self) -> None:
        """Reduce the collected values into the total; single additions would cost a kernel each."""
        if callable(self.reduce_fx):
            assert self._rows is not None
            # a copy, since the rows are written to again
            self._chunks.append(self._rows[: self._count].clone())
        else:
            self._total, self._weight = self._combined()
        self._count = 0
        self._weights.clear()

    def _make_room(self, value: Tensor) -> None:
        """Make rows that can hold a value of this type and device beside the earlier ones."""
        device = value.device
        # without loss: types of up to 32 bits are kept in 32, all others in 64, which MPS has not
        is_narrow = value.dtype in (torch.float32, torch.float16, torch.bfloat16)
        dtype = torch.float32 if is_narrow else _widest_type(device)
        rows = self._rows
        if rows is not None:
            # numbers are logged on the CPU, and may come between tensors of another device
            device = rows.device if value.is_cpu else device
            dtype = torch.promote_types(dtype, rows.dtype)
            dtype = torch.float32 if device.type == "mps" else dtype
        if rows is None or (rows.dtype, rows.device) != (dtype, device):
            self._set_rows(dtype, device)
        self._dtype, self._on_cpu = value.dtype, value.is_cpu

    def _set_rows(self, dtype: torch.dtype, device: torch.device) -> None:
        before = self._rows
        count = CHUNK if self._collects else 1
        # an inference tensor, as torch.inference_mode makes, cannot be written to outside of it
        with torch.inference_mode(mode=False), torch.no_grad():
            rows = self._rows = torch.zeros(count, dtype=dtype, device=device)
            # views, made once: indexing the rows in each step would make a new tensor
            self._cells = rows.unbind()
        if before is not None:
            rows[: self._count].copy_(before[: self._count])
        if self._total is not None:
            self._total = self._total.to(device)


def unknown(values: Tensor) -> Tensor:
    """Stand for a `reduce_fx` function of a checkpoint, until `log` passes it again."""
    return values


def _widest_type(device: torch.device) -> torch.dtype:
    """Return the floating-point type to reduce in: 64 bits, which MPS does not have."""
    return torch.float32 if device.type == "mps" else torch.float64
