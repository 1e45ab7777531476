"""History: the logged values of a training by name, in bounded memory, and their views."""

from __future__ import annotations

import copy
import sys
from array import array
from collections import deque
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from trainer_hooks.errors import MetricError, did_you_mean
from trainer_hooks.metrics.scalars import floats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from trainer_hooks.clock.progress import Progress

LIMIT = 10_000
"""Largest number of points that are kept of a metric, beside the last one."""


class MetricPoint(NamedTuple):
    """A value with its epoch, from 0 on, and its step, the position on the x axis."""

    epoch: int
    step: int
    value: Any


MAX_OBJECTS = 1000
"""Largest number of values that are kept of a metric whose values are no numbers."""

_MAX_DEFERRED = 512
"""Largest number of values that stay on their device, to be copied to the host in one go."""


class History:
    """The logged values of a training by name: those that loggers receive, and callbacks' own.

    Reductions of epochs are added at the end of each epoch, single values every
    `log_every_n_steps`, with or without a logger. Of each name the last value and at most 10 000
    others are kept, evenly spaced: if there are more, every second one is dropped, which depends on
    their number alone.

    The history is part of a checkpoint. After a resume it is the same as in an uninterrupted run.

    Callbacks may add values that are no numbers: of such a name the last 1 000 are kept.

    Args:
        progress: the counters, for the epoch and step of a value.
        show: called with name and value of each number that a callback adds, to make it a metric
            that callbacks can monitor.

    Attributes:
        epochs_before: the epochs of earlier trainings that `current_epoch` goes on from; 0 unless
            set.
    """

    def __init__(
        self, progress: Progress, show: Callable[[str, Tensor | float], None] | None = None
    ) -> None:
        self._progress = progress
        self._show = show
        self.epochs_before = 0
        self._series: dict[str, MetricSeries | ObjectSeries] = {}
        self._deferred: list[tuple[str, int, int, Any]] = []
        self._prefix = ""

    # --- reading ---

    @property
    def current_epoch(self) -> int:
        """The number of the current epoch, from 1 on; one more than the completed epochs."""
        return self.epochs_before + self._progress.epochs_completed + 1

    @property
    def present_step(self) -> int:
        """The x axis value of metrics that are logged now: the last completed window's index."""
        return max(0, self._progress.batches_stepped - 1)

    def get_metric_names(self) -> set[str]:
        """Return the names of all metrics that have values."""
        self._copy_deferred()
        return set(self._series)

    def get_metric_values(self, metric_name: str) -> list[Any]:
        """Return the values of a metric, oldest first; an empty list for an unknown name."""
        self._copy_deferred()
        series = self._series.get(metric_name)
        return [] if series is None else series.values

    def get_metric_points(self, metric_name: str) -> list[MetricPoint]:
        """Return the values of a metric with their epochs and steps, oldest first."""
        self._copy_deferred()
        return list(self._series.get(metric_name, ()))

    def get_latest_metric(self, metric_name: str) -> Any:
        """Return the last value of a metric.

        Raises:
            MetricError: the metric has no values.
        """
        self._copy_deferred()
        last = self._series[metric_name].last if metric_name in self._series else None
        if last is None:
            raise MetricError(self._unknown(metric_name, "get_latest_metric"))
        return last.value

    def to_pandas(self) -> Any:
        """Return a pandas data frame with a row for each epoch and step, a column for each metric.

        Its index is a MultiIndex of epoch, from 0 on, and step. Where a metric has no value, the
        cell is NaN.

        Raises:
            MetricError: pandas is not installed.
        """
        try:
            import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError as error:
            raise MetricError(_missing("to_pandas", "pandas")) from error
        self._copy_deferred()
        # of several values of one metric at one step the last one counts
        columns = {
            name: {(point.epoch, point.step): point.value for point in series}
            for name, series in self._numbers().items()
        }
        rows = sorted({row for column in columns.values() for row in column})
        index = pd.MultiIndex.from_tuples(rows, names=["epoch", "step"])
        data = {name: [column.get(row) for row in rows] for name, column in columns.items()}
        # the type turns a None, where a metric has no value, into NaN
        return pd.DataFrame(data, index=index, dtype="float64")

    def plot(self, *metric_names: str, x: str = "step", ax: Any = None) -> Any:
        """Plot metrics over the run and return matplotlib's axes.

        Args:
            metric_names: the metrics; all if none is given. The name of a metric that was logged by
                step and by epoch stands for `name_step` and `name_epoch`.
            x: the x axis: `"step"` or `"epoch"`.
            ax: the axes to draw into; new ones if None.

        Raises:
            MetricError: a metric has no values, `x` is neither, or matplotlib is not installed.
        """
        if x not in ("step", "epoch"):
            raise MetricError(f"history.plot(x={x!r}): must be 'step' or 'epoch'.")
        self._copy_deferred()
        # the names first: a misspelt one is reported without matplotlib, too
        chosen = [fork for name in metric_names for fork in self._forks_of(name)]
        names = list(dict.fromkeys(chosen) if metric_names else self._numbers())
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise MetricError(_missing("plot", "matplotlib")) from error
        if ax is None:
            _, ax = plt.subplots()
        for name in names:
            points = list(self._series[name])
            # a line of a single point would be invisible
            marker = "o" if len(points) == 1 else ""
            positions = [getattr(point, x) for point in points]
            ax.plot(positions, [point.value for point in points], marker=marker, label=name)
        ax.set_xlabel(x)
        if names:
            ax.legend()
        return ax

    # --- writing ---

    @property
    def metric_name_prefix(self) -> str:
        """The prefix of every name that is written from now on."""
        return self._prefix

    def set_metric_name_prefix(self, prefix: str = "") -> None:
        """Put a prefix before every name that is written from now on; names that are read stay."""
        if not isinstance(prefix, str):
            raise MetricError(f"set_metric_name_prefix({prefix!r}): must be a string.")
        self._prefix = prefix

    def update_metric(self, metric_name: str, metric_value: Any) -> None:
        """Add a value of your own.

        A number, or a tensor with one element, is also put into `trainer.callback_metrics`, so that
        callbacks can monitor it; a tensor is copied from its device later, together with others. Of
        any other value a copy is kept, which can be read here alone. For checkpoints it must be
        plain data, arrays and tensors.

        Raises:
            MetricError: the name is no string.
        """
        if not isinstance(metric_name, str):
            raise MetricError(f"update_metric({metric_name!r}, ...): the name must be a string.")
        name = self._prefix + metric_name
        value: Any = None
        if isinstance(metric_value, Tensor):
            if metric_value.numel() == 1 and not metric_value.is_complex():
                value = metric_value.detach().reshape(()).clone()
        elif isinstance(metric_value, Number) and not isinstance(metric_value, complex):
            value = float(metric_value)  # type: ignore[arg-type]
        if value is not None:
            # without the prefix, which `defer` adds
            self.defer({metric_name: value})
            if self._show is not None:
                self._show(name, value)
            return
        self._copy_deferred()
        # after the copy: earlier numbers of this name may have been deferred
        series = self._series.get(name)
        if not isinstance(series, ObjectSeries):
            series = self._series[name] = ObjectSeries(series or ())
        # a copy that in-place changes of the value do not reach
        is_tensor = isinstance(metric_value, Tensor)
        copied = metric_value.detach().clone() if is_tensor else copy.deepcopy(metric_value)
        series.add(self._progress.epochs_completed, self.present_step, copied)

    def delete_metric(self, metric_name: str) -> None:
        """Delete the values of a metric.

        Raises:
            MetricError: the metric has no values.
        """
        self._copy_deferred()
        if metric_name not in self._series:
            raise MetricError(self._unknown(metric_name, "delete_metric"))
        del self._series[metric_name]

    def reset(self) -> None:
        """Delete all values. The epoch goes on to be that of the training; the prefix stays."""
        self._series.clear()
        self._deferred.clear()

    def record(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Add numbers; the trainer calls this with the values that it gives to loggers.

        Args:
            values: numbers by name; one named `step` is for the loggers' x axis and is left out.
            step: their x axis value; `present_step` if None.
        """
        self._copy_deferred()  # first, so that the series stay in the order of their values
        step = self.present_step if step is None else step
        for name, value in values.items():
            if name != "step":
                self._add(self._prefix + name, self._progress.epochs_completed, step, float(value))

    def defer(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Add numbers and 0-dim tensors, which are copied to the host later, many in one go.

        Args:
            values: numbers and tensors by name; the tensors must not be changed in place later.
            step: their x axis value; `present_step` if None.
        """
        # read now: the counters have moved on when the values are copied
        epoch, step = self._progress.epochs_completed, self.present_step if step is None else step
        self._deferred += [(self._prefix + name, epoch, step, v) for name, v in values.items()]
        if len(self._deferred) >= _MAX_DEFERRED:
            self._copy_deferred()

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """Return all values and the prefix as plain data and tensors."""
        self._copy_deferred()
        items = self._series.items()
        return {
            "prefix": self._prefix,
            "epochs_before": self.epochs_before,
            "series": {n: s.state_dict() for n, s in items if isinstance(s, MetricSeries)},
            "objects": {n: s.state_dict() for n, s in items if not isinstance(s, MetricSeries)},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.reset()
        self._prefix = str(state_dict.get("prefix", ""))
        self.epochs_before = int(state_dict.get("epochs_before", 0))
        for name, state in state_dict.get("series", {}).items():
            series = self._series[name] = MetricSeries()
            series.load_state_dict(state)
        for name, points in (state_dict.get("objects") or {}).items():
            self._series[name] = ObjectSeries(MetricPoint(*point) for point in points)

    def _numbers(self) -> dict[str, MetricSeries]:
        """Return the series of numbers by name, without those of other objects."""
        return {
            name: series
            for name, series in self._series.items()
            if isinstance(series, MetricSeries)
        }

    def _add(self, name: str, epoch: int, step: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = MetricSeries()
        # an ObjectSeries of that name takes the number as well
        series.add(epoch, step, value)

    def _copy_deferred(self) -> None:
        """Copy the deferred values to the host in one go, and add them to their series."""
        if not self._deferred:
            return
        deferred, self._deferred = self._deferred, []
        # by index, since a name may come several times
        numbers = floats({str(index): value for index, (*_, value) in enumerate(deferred)})
        for (name, epoch, step, _), value in zip(deferred, numbers.values(), strict=True):
            self._add(name, epoch, step, value)

    def _forks_of(self, name: str) -> Iterable[str]:
        """Return the series of a metric: of its name, or those by step and by epoch."""
        numbers = self._numbers()
        forks = [name] if name in numbers else [f"{name}_step", f"{name}_epoch"]
        present = [fork for fork in forks if fork in numbers]
        if not present:
            raise MetricError(self._unknown(name, "plot"))
        return present

    def _unknown(self, name: str, method: str) -> str:
        names = ", ".join(sorted(self._series)) or "nothing"
        return (
            f"history.{method}({name!r}): no value has that name; there is {names}."
            f"{did_you_mean(name, self._series)} Log it with self.log({name!r}, ...), or add it "
            "with history.update_metric."
        )


class MetricSeries:
    """A series of numbers of one metric, thinned out evenly when it grows; the last always stays.

    When it holds `LIMIT` points, every second one is dropped, and from then on only every second
    new point is kept; and so on. Which points are kept depends on their number alone, so that a
    resumed run keeps the same.

    Attributes:
        count: number of points that were added.
        stride: one of so many added points is kept.
        last: the point that was added last.
    """

    __slots__ = ("_epochs", "_steps", "_values", "count", "last", "stride")

    def __init__(self) -> None:
        # 8 bytes for each number, where a list of floats takes 32
        self._epochs, self._steps, self._values = array("q"), array("q"), array("d")
        self.last: MetricPoint | None = None
        self.count = 0
        self.stride = 1

    def __len__(self) -> int:
        """Return the number of points that are kept."""
        return len(self._values) + self._holds_last_apart

    def __iter__(self) -> Iterator[MetricPoint]:
        """Yield the points that are kept, oldest first."""
        yield from map(MetricPoint, self._epochs, self._steps, self._values)
        if self.last is not None and self._holds_last_apart:
            yield self.last

    @property
    def values(self) -> list[float]:
        """The values of the points that are kept, oldest first."""
        last = [self.last.value] if self.last is not None and self._holds_last_apart else []
        return self._values.tolist() + last

    def add(self, epoch: int, step: int, value: float) -> None:
        """Add a point."""
        if self.count % self.stride == 0:
            self._epochs.append(epoch)
            self._steps.append(step)
            self._values.append(value)
            if len(self._values) == LIMIT:
                # with twice the stride from here on: those that stay are the points that a stride
                # of this size would have kept from the beginning
                for column in (self._epochs, self._steps, self._values):
                    del column[1::2]
                self.stride *= 2
        self.last = MetricPoint(epoch, step, value)
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the series as plain data; columns are bytes of little-endian 64-bit numbers."""
        return {
            "epochs": _bytes(self._epochs),
            "steps": _bytes(self._steps),
            "values": _bytes(self._values),
            "last": None if self.last is None else list(self.last),
            "count": self.count,
            "stride": self.stride,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self._epochs = _array("q", state_dict["epochs"])
        self._steps = _array("q", state_dict["steps"])
        self._values = _array("d", state_dict["values"])
        self.last = None
        if state_dict["last"] is not None:
            epoch, step, value = state_dict["last"]
            self.last = MetricPoint(int(epoch), int(step), float(value))
        self.count, self.stride = int(state_dict["count"]), int(state_dict["stride"])
        lengths = {len(self._epochs), len(self._steps), len(self._values)}
        if len(lengths) > 1 or self.stride < 1:
            raise ValueError(f"columns of {sorted(lengths)} points, of a stride of {self.stride}")

    @property
    def _holds_last_apart(self) -> bool:
        """Whether the last point is not among those that the stride keeps."""
        return self.count > 0 and (self.count - 1) % self.stride != 0


def _bytes(column: array[Any]) -> bytes:
    # checkpoints move between machines, so their bytes are little-endian everywhere
    if sys.byteorder == "big":
        # a copy, as `byteswap` changes the array itself
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _array(typecode: str, data: bytes) -> array[Any]:
    column = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


class ObjectSeries:
    """The last values of one metric whose values are no numbers, such as confusion matrices.

    Args:
        points: the first points.
    """

    __slots__ = ("_points",)

    def __init__(self, points: Iterable[MetricPoint] = ()) -> None:
        self._points = deque(points, MAX_OBJECTS)

    def __iter__(self) -> Iterator[MetricPoint]:
        """Yield the points that are kept, oldest first."""
        return iter(self._points)

    @property
    def values(self) -> list[Any]:
        """The values of the points that are kept, oldest first."""
        return [point.value for point in self._points]

    @property
    def last(self) -> MetricPoint:
        """The point that was added last."""
        return self._points[-1]

    def add(self, epoch: int, step: int, value: Any) -> None:
        """Add a point."""
        self._points.append(MetricPoint(epoch, step, value))

    def state_dict(self) -> list[list[Any]]:
        """Return the points as lists of epoch, step and value."""
        return [list(point) for point in self._points]


def _missing(method: str, package: str) -> str:
    return (
        f"history.{method}() needs the package {package}, which is not installed. Install it with: "
        "pip install trainer-hooks[plots]."
    )
