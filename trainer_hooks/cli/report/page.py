"""The page of the report: its contents as plain data, and the HTML that Jinja renders from them.

All markup is in the templates beside this module. Jinja escapes every value; only the script of
plotly goes in as it is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks._text import printable
from trainer_hooks._version import __version__
from trainer_hooks.cli.report.charts import Figure, FigureList, metric_charts, speed_charts
from trainer_hooks.cli.report.checkpoints import CheckpointFile, read_checkpoints
from trainer_hooks.cli.report.hook_times import HookTimes, read_hook_times
from trainer_hooks.cli.report.journal_reader import number
from trainer_hooks.cli.report.samples import Sample, read_samples
from trainer_hooks.cli.report.sections import (
    CallbackTables,
    HparamsTable,
    MetricExtremes,
    OutcomeBadge,
    RunEnvironment,
    StartRow,
    callback_tables,
    duration_words,
    hparams_table,
    local_time,
    metric_extremes,
    outcome_badge,
    run_environment,
    start_rows,
    summary_facts,
)
from trainer_hooks.cli.values import count_with_noun, size_text
from trainer_hooks.hooks.profile import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Environment

    from trainer_hooks.cli.report.logged_run import LoggedRun

__all__ = ["ReportPage", "RunSection", "make_page", "render_page"]


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
class RunSection:
    """The contents of the page about one run.

    Attributes:
        index: its index, which gives it its colour.
        label: its name beside the other runs.
        state: the outcome of its last training; None without a journal.
        summary: the facts of its overview, by their labels.
        starts: its starts.
        costs: the times of its callbacks; None where it was not profiled.
        cost_figure: the figure of those times.
        checkpoints: its newest checkpoints.
        more_checkpoints: the number of older ones, which are left out.
        samples: its pictures and texts.
        environment: the environment of its last training; None without a journal.
        supplied: its callbacks and plugins; None without a journal.
        notes: notes on missing or damaged files.
    """

    index: int
    label: str
    state: OutcomeBadge | None
    summary: dict[str, str]
    starts: list[StartRow]
    costs: HookTimes | None
    cost_figure: Figure | None
    checkpoints: list[CheckpointFile]
    more_checkpoints: int
    samples: list[Sample]
    environment: RunEnvironment | None
    supplied: CallbackTables | None
    notes: list[str]


@dataclass(frozen=True, slots=True)
class ReportPage:
    """The contents of the page.

    Attributes:
        title: its title.
        made: the time of its making, in seconds since 1970.
        version: the version of trainer_hooks that made it.
        parts: the headings of its parts, by the names of their templates.
        runs: the contents about each run.
        curves: the figures of metrics.
        rates: the figures of learning rates.
        speed: the figures of throughput.
        timeline: the figure of the starts over time; None without a journal.
        values: the last, lowest and highest value of each metric.
        hparams: the hyperparameters.
        data: the data that its script draws.
    """

    title: str
    made: float
    version: str
    parts: dict[str, str]
    runs: list[RunSection]
    curves: list[Figure]
    rates: list[Figure]
    speed: list[Figure]
    timeline: Figure | None
    values: list[MetricExtremes]
    hparams: HparamsTable
    data: dict[str, Any]


def make_page(runs: Sequence[LoggedRun]) -> ReportPage:
    """Collect the contents of the page about one run, or about several beside each other."""
    figures = FigureList()
    metrics = metric_charts(runs)
    has_samples = any((run.folder / "samples").is_dir() for run in runs)
    curves = figures.curves([chart for chart in metrics if chart.kind == "metric"])
    rates = figures.curves([chart for chart in metrics if chart.kind == "rate"])
    speed = figures.curves(speed_charts(runs))
    timeline = figures.timeline(runs)
    return ReportPage(
        title=", ".join(run.label for run in runs),
        made=time.time(),
        version=__version__,
        parts={name: _PARTS[name] for name in _PARTS if name != "samples" or has_samples},
        runs=[_run_section(index, run, figures) for index, run in enumerate(runs)],
        curves=curves,
        rates=rates,
        speed=speed,
        timeline=timeline,
        values=metric_extremes(runs),
        hparams=hparams_table(runs),
        data={
            "runs": [run.label for run in runs],
            "resumes": [_resume_steps(run) for run in runs],
            "charts": figures.charts,
        },
    )


def _run_section(index: int, run: LoggedRun, figures: FigureList) -> RunSection:
    costs = read_hook_times(run.folder, run.notes)
    checkpoints, more_checkpoints = read_checkpoints(run)
    return RunSection(
        index=index,
        label=run.label,
        state=None if run.last_fit is None else outcome_badge(run.last_fit),
        summary=summary_facts(run),
        starts=start_rows(run),
        costs=costs,
        cost_figure=None if costs is None else figures.costs(costs),
        checkpoints=checkpoints,
        more_checkpoints=more_checkpoints,
        samples=read_samples(run.folder, run.notes),
        environment=run_environment(run),
        supplied=callback_tables(run),
        notes=run.notes,
    )


def _resume_steps(run: LoggedRun) -> list[int]:
    """Return the steps at which a run was resumed."""
    return [int(number(fit.start, "step")) for fit in run.fits if fit.resumed_from]


def render_page(page: ReportPage) -> str:
    """Render the page as HTML.

    Raises:
        ModuleNotFoundError: Jinja or plotly is not installed.
    """
    from plotly.offline import get_plotlyjs

    template = _environment().get_template("page.html")
    return template.render(page=page, plotly=get_plotlyjs())


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trainer_hooks.cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        # names of metrics and errors come from anywhere: a control character could hide text
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": count_with_noun,
        "digits": "{:.6g}".format,
        "duration": format_duration,
        "duration_words": duration_words,
        "local_time": local_time,
        "percent": "{:.2%}".format,
        "size": size_text,
        "thousands": "{:,}".format,
    }
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _visible(value: object) -> object:
    """Return a value with its control characters written out; keep markup as it is."""
    return value if hasattr(value, "__html__") else printable(value)
