"""What the report draws: curves that belong together in one chart, as plain data for its script."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.report.journal import Session
    from trainer_hooks.cli.report.run import Run

__all__ = ["Chart", "Trace", "metric_charts", "points_for", "speed_charts"]

_ALL_POINTS, _MOST_POINTS, _FEWEST_POINTS = 400_000, 2000, 64
_STAGE = re.compile(r"(?:train|training|val|valid|validation|test)[_/.-](.+)")
_KIND = re.compile(r"_(?:step|epoch)$")
_RATE = re.compile(r"(?:lr|learning_rate)(?:[-_/ ].*)?", re.IGNORECASE)
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Trace:
    """One curve of one run.

    Attributes:
        run: the run's number.
        name: what the curve is called.
        steps: the x axis.
        epochs: the same, as epochs; empty where no epochs were logged.
        values: the y axis.
        count: how many values there were before they were thinned out.
    """

    run: int
    name: str
    steps: list[int]
    epochs: list[float]
    values: list[float]
    count: int

    def as_data(self) -> dict[str, Any]:
        """Return it for the script."""
        return {
            "run": self.run,
            "name": self.name,
            "x": self.steps,
            "e": [round(epoch, 4) for epoch in self.epochs],
            "y": [float(f"{value:.{_DIGITS}g}") for value in self.values],
        }


@dataclass(slots=True)
class Chart:
    """Curves that are drawn together.

    Attributes:
        title: its heading.
        kind: `"metric"`, `"rate"` or `"speed"`.
        traces: the curves.
    """

    title: str
    kind: str
    traces: list[Trace] = field(default_factory=list)


def points_for(curves: int) -> int:
    """Return how many points each of so many curves may have, so that the page stays small."""
    return max(_FEWEST_POINTS, min(_MOST_POINTS, _ALL_POINTS // max(1, curves)))


def metric_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return a chart for each metric; those of training, validation and test share one."""
    charts: dict[tuple[str, str], Chart] = {}
    for index, run in enumerate(runs):
        for name, curve in run.metrics.curves.items():
            points = curve.points
            if not points:
                continue
            steps = [point.step for point in points]
            axis = run.metrics.epochs
            kind = "rate" if _RATE.fullmatch(name) else "metric"
            key = name if kind == "rate" else _family(name)
            chart = charts.setdefault((kind, key), Chart(key, kind))
            chart.traces.append(
                Trace(
                    index,
                    name,
                    steps,
                    axis.places(steps) if axis else [],
                    [point.value for point in points],
                    curve.count,
                )
            )
    for chart in charts.values():
        names = {trace.name for trace in chart.traces}
        if len(names) == 1:
            chart.title = names.pop()
    return sorted(charts.values(), key=lambda chart: "loss" not in chart.title.lower())


def speed_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return charts of how many batches and samples a second were trained."""
    batches, samples = Chart("batches per second", "speed"), Chart("samples per second", "speed")
    for index, run in enumerate(runs):
        places: list[tuple[int, float, float]] = []
        for session in run.fits:
            places += _speeds(session)
        kept = _ascending(places)
        axis = run.metrics.epochs
        steps = [step for step, _, _ in kept]
        epochs = axis.places(steps) if axis else []
        for chart, column in ((batches, 1), (samples, 2)):
            values = [place[column] for place in kept]
            if any(values):
                chart.traces.append(Trace(index, chart.title, steps, epochs, values, len(values)))
    return [chart for chart in (batches, samples) if chart.traces]


def _speeds(session: Session) -> list[tuple[int, float, float]]:
    """Return steps, batches a second and samples a second, between two looks at the clock each."""
    found = []
    size = next((number(s, "batch_size") for s in session.samples if "batch_size" in s), 0.0)
    for before, after in zip(session.samples, session.samples[1:], strict=False):
        seconds = _training_seconds(after) - _training_seconds(before)
        batches = number(after, "batches") - number(before, "batches")
        if seconds > 0 and batches > 0:
            rate = batches / seconds
            found.append((int(number(after, "step")), rate, rate * size))
    return found


def _ascending(places: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Return them without those that a resumed run came to again, because they were lost."""
    kept: list[tuple[int, float, float]] = []
    for place in places:
        while kept and kept[-1][0] >= place[0]:
            kept.pop()
        kept.append(place)
    return kept


def _training_seconds(sample: dict[str, Any]) -> float:
    return number(sample, "seconds") - number(sample, "validation_seconds")


def _family(name: str) -> str:
    """Return what the names of one metric in training, validation and test have in common."""
    match = _STAGE.fullmatch(name)
    return _KIND.sub("", match[1] if match else name)
