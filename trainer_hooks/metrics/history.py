"""History: every value of a run by name, as far as it is due, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import MetricError, nearest
from trainer_hooks.metrics.series import Point, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from trainer_hooks.clock import Progress
    from trainer_hooks.metrics.objects_kept import Objects

__all__ = ["History"]

_MOST_DEFERRED = 512
"""Values that wait on their device at most, to be copied from there together."""


class History:
    """What was logged in a training, by name: what loggers are given, and what callbacks add.

    Reductions of epochs are there at the end of each, single values every `log_every_n_steps`, be
    there a logger or not. Of each name the last value and at most 10 000 others are kept, spread
    evenly: every second one is dropped when there are more, which depends on their number alone.

    It is part of a checkpoint; after a resume it is what it would be without the cut.

    What callbacks add may be no number: the last 1 000 values of such a name are kept as they are.

    Args:
        progress: the counters that say where in the run a value belongs.
        show: is given each number that a callback adds, with its name, for those who watch it.
    """

    def __init__(
        self, progress: Progress, show: Callable[[str, Tensor | float], None] | None = None
    ) -> None:
        self._progress = progress
        self._show = show
        self._series: dict[str, Series | Objects] = {}
        self._deferred: list[tuple[str, int, int, Any]] = []
        self._prefix = ""

    # --- what is read ---

    @property
    def current_epoch(self) -> int:
        """The number of the epoch under way, from 1 on; one more than the epochs that are done."""
        return self._progress.epochs_completed + 1

    @property
    def present_step(self) -> int:
        """The place on the x axis of what is logged now: the last window that was done."""
        return max(0, self._progress.batches_stepped - 1)

    def get_metric_names(self) -> set[str]:
        """Return the names that have values."""
        self._copy_deferred()
        return set(self._series)

    def get_metric_values(self, metric_name: str) -> list[Any]:
        """Return the values of a name, oldest first; none where there is no such name."""
        self._copy_deferred()
        series = self._series.get(metric_name)
        return [] if series is None else series.values

    def get_metric_points(self, metric_name: str) -> list[Point]:
        """Return the values of a name with their epochs and places on the x axis, oldest first."""
        self._copy_deferred()
        return list(self._series.get(metric_name, ()))

    def get_latest_metric(self, metric_name: str) -> Any:
        """Return the last value of a name.

        Raises:
            MetricError: there is none.
        """
        self._copy_deferred()
        last = self._series[metric_name].last if metric_name in self._series else None
        if last is None:
            raise MetricError(self._unknown(metric_name, "get_latest_metric"))
        return last.value

    def to_pandas(self) -> Any:
        """Return a data frame with a row for each place, and a column for each name.

        Its index is of the epoch, from 0 on, and the place on the x axis; what was not logged at a
        place is NaN there.

        Raises:
            MetricError: pandas is not installed.
        """
        from trainer_hooks.metrics.history_views import frame_of

        self._copy_deferred()
        return frame_of({name: list(series) for name, series in self._numbers().items()})

    def plot(self, *metric_names: str, x: str = "step", ax: Any = None) -> Any:
        """Draw names over the run and return matplotlib's axes.

        Args:
            metric_names: the names, all of them unless given; one that was logged by step and by
                epoch stands for `name_step` and `name_epoch`.
            x: `"step"` or `"epoch"`.
            ax: the axes to draw into; new ones unless given.

        Raises:
            MetricError: a name has no values, `x` is neither, or matplotlib is not installed.
        """
        from trainer_hooks.metrics.history_views import drawn

        if x not in ("step", "epoch"):
            raise MetricError(f"history.plot(x={x!r}): must be 'step' or 'epoch'.")
        self._copy_deferred()
        chosen = [found for name in metric_names for found in self._forks_of(name)]
        names = dict.fromkeys(chosen) if metric_names else self._numbers()
        return drawn({name: list(self._series[name]) for name in names}, x, ax)

    # --- what is written ---

    @property
    def metric_name_prefix(self) -> str:
        """What is put before every name that is written from now on."""
        return self._prefix

    def set_metric_name_prefix(self, prefix: str = "") -> None:
        """Put a prefix before every name that is written from now on; names that are read stay."""
        if not isinstance(prefix, str):
            raise MetricError(f"set_metric_name_prefix({prefix!r}): must be a string.")
        self._prefix = prefix

    def update_metric(self, metric_name: str, metric_value: Any) -> None:
        """Add a value of your own.

        A number, or a tensor with one element, is in `trainer.callback_metrics` from now on too, so
        that callbacks can watch it; a tensor is copied from its device later, together with others.
        Of anything else a copy is kept, which can be read here alone. For checkpoints it must be
        plain data, arrays and tensors.

        Raises:
            MetricError: the name is no string.
        """
        from trainer_hooks.metrics.objects_kept import Objects, copied
        from trainer_hooks.metrics.values import is_single, taken

        if not isinstance(metric_name, str):
            raise MetricError(f"update_metric({metric_name!r}, ...): the name must be a string.")
        name = self._prefix + metric_name
        if is_single(metric_value):
            value = taken(metric_name, metric_value)
            self.defer({metric_name: value})
            if self._show is not None:
                self._show(name, value)
            return
        self._copy_deferred()
        kept = self._series.get(name)
        if not isinstance(kept, Objects):
            kept = self._series[name] = Objects(kept or ())
        kept.add(self._progress.epochs_completed, self.present_step, copied(metric_value))

    def delete_metric(self, metric_name: str) -> None:
        """Forget the values of a name.

        Raises:
            MetricError: there are none.
        """
        self._copy_deferred()
        if metric_name not in self._series:
            raise MetricError(self._unknown(metric_name, "delete_metric"))
        del self._series[metric_name]

    def reset(self) -> None:
        """Forget all values. The epoch is the training's, and the prefix stays."""
        self._series.clear()
        self._deferred.clear()

    def record(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Take numbers in; the trainer calls this where it gives them to loggers.

        Args:
            values: by name; one named `step` is their place on the x axis and not kept.
            step: their place on the x axis; that of now unless given.
        """
        self._copy_deferred()
        step = self.present_step if step is None else step
        for name, value in values.items():
            if name != "step":
                self._add(self._prefix + name, self._progress.epochs_completed, step, float(value))

    def defer(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Take numbers in, and 0-dim tensors that nothing changes later, to copy many together.

        Args:
            values: by name.
            step: their place on the x axis; that of now unless given.
        """
        epoch, step = self._progress.epochs_completed, self.present_step if step is None else step
        self._deferred += [(self._prefix + name, epoch, step, v) for name, v in values.items()]
        if len(self._deferred) >= _MOST_DEFERRED:
            self._copy_deferred()

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        self._copy_deferred()
        return {
            "prefix": self._prefix,
            "series": {name: series.state_dict() for name, series in self._numbers().items()},
            "objects": {
                name: kept.state_dict()
                for name, kept in self._series.items()
                if not isinstance(kept, Series)
            },
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned, or nothing of a checkpoint that holds none."""
        self.reset()
        self._prefix = state_dict.get("prefix", "")
        for name, state in state_dict.get("series", {}).items():
            series = self._series[name] = Series()
            series.load_state_dict(state)
        objects = state_dict.get("objects")
        if objects:
            from trainer_hooks.metrics.objects_kept import Objects

            self._series.update({name: Objects.of(state) for name, state in objects.items()})

    def _numbers(self) -> dict[str, Series]:
        """Return the names whose values are numbers."""
        return {name: kept for name, kept in self._series.items() if isinstance(kept, Series)}

    def _add(self, name: str, epoch: int, step: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series()
        series.add(epoch, step, value)

    def _copy_deferred(self) -> None:
        """Copy what waits on a device, all of it in one go."""
        if not self._deferred:
            return
        from trainer_hooks.metrics.values import floats

        deferred, self._deferred = self._deferred, []
        numbers = floats({str(place): value for place, (*_, value) in enumerate(deferred)})
        for (name, epoch, step, _), value in zip(deferred, numbers.values(), strict=True):
            self._add(name, epoch, step, value)

    def _forks_of(self, name: str) -> Iterable[str]:
        numbers = self._numbers()
        forks = [name] if name in numbers else [f"{name}_step", f"{name}_epoch"]
        found = [fork for fork in forks if fork in numbers]
        if not found:
            raise MetricError(self._unknown(name, "plot"))
        return found

    def _unknown(self, name: str, method: str) -> str:
        known = ", ".join(sorted(self._series)) or "nothing"
        return (
            f"history.{method}({name!r}): no value has that name; there is {known}."
            f"{nearest(name, self._series)} Log it with self.log({name!r}, ...), or add it with "
            "history.update_metric."
        )
