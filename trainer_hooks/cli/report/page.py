"""What the page of the report tells, as plain data; its templates make the page of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks._version import __version__
from trainer_hooks.cli.report.charts import metric_charts, speed_charts
from trainer_hooks.cli.report.checkpoints import CheckpointFile, checkpoints_of
from trainer_hooks.cli.report.costs import Costs, costs_of
from trainer_hooks.cli.report.figures import Figure, Figures
from trainer_hooks.cli.report.journal import number
from trainer_hooks.cli.report.origin import Origin, Supplied, origin_of, supplied_to
from trainer_hooks.cli.report.samples import Sample, samples_of
from trainer_hooks.cli.report.sections import (
    Hparams,
    Start,
    State,
    Value,
    hparams_of,
    starts_of,
    state_of,
    summary_of,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.report.run import Run

__all__ = ["Page", "ShownRun", "page_of"]

_PARTS = {
    "overview": "Overview",
    "curves": "Curves",
    "rates": "Learning rates",
    "speed": "Throughput",
    "values": "Values",
    "timeline": "Timeline",
    "hooks": "Time by callback and hook",
    "checkpoints": "Checkpoints",
    "samples": "Samples",
    "hyperparameters": "Hyperparameters",
    "environment": "Environment",
    "plugins": "Callbacks and plugins",
    "notes": "Notes",
}
"""The parts by the names of their templates, in their order, with their headings."""


@dataclass(frozen=True, slots=True)
class ShownRun:
    """What the page tells of one run.

    Attributes:
        index: its number, which gives it its colour.
        label: what it is called.
        state: how its last training stands; None where that is not known.
        summary: what else is said of it first.
        starts: how often it was started, and how that went.
        costs: what its callbacks took; None where it was not profiled.
        cost_figure: the same, drawn.
        checkpoints: those that it left.
        more_checkpoints: how many older ones are left out.
        samples: the pictures and texts that it left.
        environment: what it was made with; None where that is not known.
        supplied: its callbacks and plugins; None where they are not known.
        notes: what a reader should know of what is missing or damaged.
    """

    index: int
    label: str
    state: State | None
    summary: dict[str, str]
    starts: list[Start]
    costs: Costs | None
    cost_figure: Figure | None
    checkpoints: list[CheckpointFile]
    more_checkpoints: int
    samples: list[Sample]
    environment: Origin | None
    supplied: Supplied | None
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Page:
    """What the page tells.

    Attributes:
        title: its title.
        made: when, in seconds since 1970.
        version: the version that made it.
        parts: the headings of its parts, by the names of their templates.
        runs: what it tells of each run.
        curves: the figures of metrics.
        rates: those of learning rates.
        speed: those of throughput.
        timeline: when the runs ran; None where that is not known.
        values: what became of each metric.
        hparams: the hyperparameters.
        data: what its script draws.
    """

    title: str
    made: float
    version: str
    parts: dict[str, str]
    runs: list[ShownRun]
    curves: list[Figure]
    rates: list[Figure]
    speed: list[Figure]
    timeline: Figure | None
    values: list[Value]
    hparams: Hparams
    data: dict[str, Any]


def page_of(runs: Sequence[Run]) -> Page:
    """Return what the page tells of one run, or for several beside each other."""
    figures = Figures()
    metrics = metric_charts(runs)
    has_samples = any((run.folder / "samples").is_dir() for run in runs)
    curves = figures.curves([chart for chart in metrics if chart.kind == "metric"])
    rates = figures.curves([chart for chart in metrics if chart.kind == "rate"])
    speed = figures.curves(speed_charts(runs))
    timeline = figures.timeline(runs)
    return Page(
        title=", ".join(run.label for run in runs),
        made=time.time(),
        version=__version__,
        parts={name: _PARTS[name] for name in _PARTS if name != "samples" or has_samples},
        runs=[_shown(index, run, figures) for index, run in enumerate(runs)],
        curves=curves,
        rates=rates,
        speed=speed,
        timeline=timeline,
        values=values_of(runs),
        hparams=hparams_of(runs),
        data={
            "runs": [run.label for run in runs],
            "resumes": [_resumes(run) for run in runs],
            "charts": figures.charts,
        },
    )


def _shown(index: int, run: Run, figures: Figures) -> ShownRun:
    costs = costs_of(run.folder, run.notes)
    checkpoints, more_checkpoints = checkpoints_of(run)
    return ShownRun(
        index=index,
        label=run.label,
        state=None if run.last_fit is None else state_of(run.last_fit),
        summary=summary_of(run),
        starts=starts_of(run),
        costs=costs,
        cost_figure=None if costs is None else figures.costs(costs),
        checkpoints=checkpoints,
        more_checkpoints=more_checkpoints,
        samples=samples_of(run.folder, run.notes),
        environment=origin_of(run),
        supplied=supplied_to(run),
        notes=run.notes,
    )


def _resumes(run: Run) -> list[int]:
    """Return the steps at which a run went on."""
    return [int(number(fit.start, "step")) for fit in run.fits if fit.resumed_from]
