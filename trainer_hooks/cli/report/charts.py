"""The charts and figures of the report, as plain data for the script that draws them."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.logged_run import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.report.artifacts import HookTimes
    from trainer_hooks.cli.report.logged_run import JournaledRun, LoggedRun

_PAGE_POINTS, _MAX_CURVE_POINTS, _MIN_CURVE_POINTS = 400_000, 2000, 64
_STAGE_PREFIX = re.compile(r"(?:train|training|val|valid|validation|test)[_/.-](.+)")
_INTERVAL_SUFFIX = re.compile(r"_(?:step|epoch)$")
_SYSTEM = re.compile(r"(?:.*DeviceStatsMonitor[^/]*/|(?=(?:cpu|gpu|nvml)[_/.]))(.+)", re.IGNORECASE)
_GRADIENT = re.compile(r"(?:.*[/_.])?grad(?:ient)?s?(?:[/_.].*)?", re.IGNORECASE)
_LEARNING_RATE = re.compile(r"(?:lr|learning_rate)(?:[-_/ ].*)?", re.IGNORECASE)
_DIGITS = 9  # more than a float32 has; float64 noise would only make the page larger


@dataclass(frozen=True, slots=True)
class PlottedCurve:
    """One curve of one run.

    Attributes:
        run: the run's index.
        name: the curve's name.
        steps: the x axis in steps.
        epochs: the x axis in epochs; empty where no epochs were logged.
        values: the y axis.
        count: the number of values before they were thinned out.
    """

    run: int
    name: str
    steps: list[int]
    epochs: list[float]
    values: list[float]
    count: int


@dataclass(slots=True)
class Chart:
    """Curves that are drawn in one chart.

    Attributes:
        title: its heading.
        kind: `"metric"`, `"rate"`, `"gradient"`, `"system"` or `"speed"`.
        traces: the curves.
    """

    title: str
    kind: str
    traces: list[PlottedCurve] = field(default_factory=list)


def local_time(seconds: float) -> str:
    """Format a time, in seconds since 1970, as local time; an empty string for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds > 0 else ""


def points_for(curves: int) -> int:
    """Return the maximum of points for each of so many curves; more would make the page too big."""
    # never below the least: a thousand curves are drawn roughly, but drawn
    return max(_MIN_CURVE_POINTS, min(_MAX_CURVE_POINTS, _PAGE_POINTS // max(1, curves)))


def most_curves() -> int:
    """Return the maximum of curves for which a page has room."""
    return _PAGE_POINTS // _MIN_CURVE_POINTS


def metric_charts(runs: Sequence[LoggedRun]) -> list[Chart]:
    """Return a chart for each metric; training, validation and test share one.

    Charts of losses come first.
    """
    charts: dict[tuple[str, str], Chart] = {}
    for index, run in enumerate(runs):
        for name, curve in run.metrics.curves.items():
            points = curve.points
            if not points:
                continue
            steps = [point.step for point in points]
            axis = run.metrics.epochs
            kind, key = kind_and_title(name)
            chart = charts.setdefault((kind, key), Chart(key, kind))
            chart.traces.append(
                PlottedCurve(
                    index,
                    name,
                    steps,
                    axis.positions(steps) if axis else [],
                    [point.value for point in points],
                    curve.count,
                )
            )
    for chart in charts.values():
        names = {trace.name for trace in chart.traces}
        if len(names) == 1:
            # with one name alone the full one: `val_loss` says more than `loss`
            chart.title = names.pop()
    # sorted keeps the order of what is equal, and so that of the metrics file
    return sorted(charts.values(), key=lambda chart: "loss" not in chart.title.lower())


def speed_charts(runs: Sequence[LoggedRun]) -> list[Chart]:
    """Return the charts of trained batches and samples per second."""
    batches, samples = Chart("batches per second", "speed"), Chart("samples per second", "speed")
    for index, run in enumerate(runs):
        speeds: list[tuple[int, float, float]] = []
        for speed in (speed for fit in run.fits for speed in _speeds(fit)):
            # a resumed run trained the lost steps again
            while speeds and speeds[-1][0] >= speed[0]:
                speeds.pop()
            speeds.append(speed)
        axis = run.metrics.epochs
        steps = [step for step, _, _ in speeds]
        epochs = axis.positions(steps) if axis else []
        for chart, column in ((batches, 1), (samples, 2)):
            values = [speed[column] for speed in speeds]
            if any(values):
                chart.traces.append(
                    PlottedCurve(index, chart.title, steps, epochs, values, len(values))
                )
    return [chart for chart in (batches, samples) if chart.traces]


def _speeds(fit: JournaledRun) -> list[tuple[int, float, float]]:
    """Return step, batches per second and samples per second between each two journal samples."""
    speeds = []
    # a property of the whole fit: not every sample has it
    size = next((number(s, "batch_size") for s in fit.samples if "batch_size" in s), 0.0)
    for before, after in zip(fit.samples, fit.samples[1:], strict=False):
        seconds = _training_seconds(after) - _training_seconds(before)
        batches = number(after, "batches") - number(before, "batches")
        if seconds > 0 and batches > 0:
            rate = batches / seconds
            speeds.append((int(number(after, "step")), rate, rate * size))
    return speeds


def _training_seconds(sample: dict[str, Any]) -> float:
    # validation takes time, but trains no batches
    return number(sample, "seconds") - number(sample, "validation_seconds")


def kind_and_title(name: str) -> tuple[str, str]:
    """Return the kind of a metric's chart, and the chart's title."""
    if _LEARNING_RATE.fullmatch(name):
        return "rate", name
    # of a DeviceStatsMonitor, the values before and after a batch share a chart
    if match := _SYSTEM.fullmatch(name):
        return "system", match[1]
    return ("gradient", name) if _GRADIENT.fullmatch(name) else ("metric", _metric_family(name))


def _metric_family(name: str) -> str:
    """Return the name of a metric without its stage and interval: `val_loss_epoch` as `loss`."""
    match = _STAGE_PREFIX.fullmatch(name)
    return _INTERVAL_SUFFIX.sub("", match[1] if match else name)


_KEYS = "Arrow keys move, + and - zoom, 0 shows all."


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure on the page, in which the script draws a chart.

    Attributes:
        number: the index of its chart in the page's data.
        title: its heading.
        alt_text: its description for screen readers.
        note: a line below it, or an empty string.
        is_wide: whether it is as wide as the page.
    """

    number: int
    title: str
    alt_text: str
    note: str = ""
    is_wide: bool = False


class FigureList:
    """Makes the figures of a page and collects the data of their charts.

    Attributes:
        charts: the data of each figure's chart, by the figure's number.
        axes: the x axes of curves, in steps and in epochs.
    """

    def __init__(self) -> None:
        self.charts: list[dict[str, Any]] = []
        self.axes: list[dict[str, Any]] = []
        self._axes: dict[tuple[tuple[int, ...], tuple[float, ...]], int] = {}

    def curves(self, charts: Sequence[Chart]) -> list[Figure]:
        """Make a figure for each chart."""
        return [self._curve(chart) for chart in charts]

    def timeline(self, runs: Sequence[LoggedRun]) -> Figure | None:
        """Make the figure of the starts of all runs over time; None without a journal."""
        spans = [
            {
                "row": run.label if len(runs) > 1 else start.stage,
                "began": start.began,
                # a clock that was set back would make a bar of negative length
                "ended": max(start.last_seen, start.began),
                "outcome": str(start.outcome),
                "text": f"{start.stage}, {start.outcome}: {local_time(start.began)} to "
                f"{local_time(start.last_seen)}",
            }
            for run in runs
            for start in run.starts
        ]
        return self._wide({"draws": "timeline", "spans": spans}, "When it ran") if spans else None

    def costs(self, costs: HookTimes) -> Figure:
        """Make the figure of the time of each callback, the longest total first."""
        totals = Counter[str]()
        for item in costs.spent:
            totals[item.callback] += item.total  # type: ignore[assignment]
        bars = [
            {"callback": item.callback, "hook": item.hook, "total": item.total}
            for item in sorted(costs.spent, key=lambda item: -totals[item.callback])
        ]
        return self._wide({"draws": "costs", "bars": bars}, "Time by callback")

    def _curve(self, chart: Chart) -> Figure:
        traces = [
            {
                "run": trace.run,
                "name": trace.name,
                "axis": self._axis(trace),
                "y": [float(f"{value:.{_DIGITS}g}") for value in trace.values],
            }
            for trace in chart.traces
        ]
        number = self._add({"draws": "curves", "title": chart.title, "traces": traces})
        thinned = [trace for trace in chart.traces if trace.count > len(trace.values)]
        note = ""
        if thinned:
            most = max(thinned, key=lambda trace: trace.count)
            note = (
                f"{most.count:,} values, of which {len(most.values):,} are drawn: of each "
                "stretch the first, the last, the lowest and the highest."
            )
        alt_text = f"{chart.title}: {len(traces)} curves. {_KEYS}"
        return Figure(number, chart.title, alt_text, note)

    def _axis(self, trace: PlottedCurve) -> int:
        """Return the index of a curve's x axis; curves with the same one share it."""
        key = (tuple(trace.steps), tuple(trace.epochs))
        if key not in self._axes:
            self._axes[key] = len(self.axes)
            epochs = [round(epoch, 4) for epoch in trace.epochs]
            self.axes.append({"x": trace.steps, "e": epochs})
        return self._axes[key]

    def _wide(self, data: dict[str, Any], title: str) -> Figure:
        return Figure(self._add(data), title, title, is_wide=True)

    def _add(self, data: dict[str, Any]) -> int:
        self.charts.append(data)
        return len(self.charts) - 1
