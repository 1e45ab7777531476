"""The page of the report: its contents as plain data, and the HTML that Jinja renders from them.

All markup is in the templates beside this module. Jinja escapes every value; only the script of
uPlot, which draws the curves, goes in as it is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks._system import shell_line
from trainer_hooks._text import count_with_noun, printable
from trainer_hooks._version import __version__
from trainer_hooks.checkpoint.inspection import as_mapping
from trainer_hooks.cli.report.artifacts import (
    CheckpointFile,
    HookTimes,
    Sample,
    read_checkpoints,
    read_hook_times,
    read_samples,
)
from trainer_hooks.cli.report.charts import (
    Figure,
    FigureList,
    local_time,
    metric_charts,
    points_for,
    speed_charts,
)
from trainer_hooks.cli.report.comparison import (
    MAX_IN_DETAIL,
    comparison_data,
    read_comparison,
    sweep_objective,
)
from trainer_hooks.cli.report.logged_run import (
    Outcome,
    count_metrics,
    labels_of,
    number,
    read_run,
    text,
)
from trainer_hooks.cli.report.machine import MachineFilter
from trainer_hooks.cli.values import short_text, size_text
from trainer_hooks.hooks.profile import format_duration
from trainer_hooks.loggers.conversion import flattened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from jinja2 import Environment

    from trainer_hooks.cli.report.comparison import Comparison, Objective
    from trainer_hooks.cli.report.logged_run import JournaledRun, LoggedRun, RunReader
    from trainer_hooks.cli.report.metrics import CurvePoint

_MINUTE, _HOUR = 60, 3600
_COMMIT_LENGTH = 12
_MAX_TITLE = 100
TONES = {
    Outcome.FINISHED: "good",
    Outcome.RUNNING: "live",
    Outcome.UNKNOWN: "live",
    Outcome.SIGNAL: "warn",
    Outcome.FAILED: "bad",
    Outcome.KILLED: "bad",
}
"""The tone of each outcome: a style in the page's style sheet, a color on the terminal."""


def duration_words(seconds: float) -> str:
    """Format a duration in seconds as `3 h 20 min` or `2 min 5 s`."""
    # not humanize: one more package for six lines
    if seconds < _MINUTE:
        return format_duration(seconds)
    minutes, rest = divmod(round(seconds), _MINUTE)
    if seconds < _HOUR:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


# --- the runs and their starts ---


@dataclass(frozen=True, slots=True)
class OutcomeBadge:
    """The outcome of a start, with its style and its error.

    Attributes:
        outcome: the outcome in a word or two.
        tone: the style, which says whether that is good.
        detail: the error or the signal, or an empty string.
    """

    outcome: str
    tone: str
    detail: str


@dataclass(slots=True)
class StartRow:
    """A row of the table of starts.

    Attributes:
        began: the time of the start, in seconds since 1970.
        description: the stage, and the checkpoint that it resumed from.
        first_step: the step at its beginning.
        last_step: the step of its last record.
        is_ended: whether that is its end; if not, it may have come further.
        seconds: its duration.
        state: its outcome.
        process: the machine and the process id.
    """

    began: float
    description: str
    first_step: int
    last_step: int
    is_ended: bool
    seconds: float
    state: OutcomeBadge
    process: str


def outcome_badge(run: JournaledRun) -> OutcomeBadge:
    """Return the outcome of a start, with its error or signal."""
    detail = text(run.end, "signal")
    if isinstance(error := run.end.get("error"), dict):
        detail = f"{text(error, 'type')}: {text(error, 'message')}"
    return OutcomeBadge(str(run.outcome), TONES[run.outcome], detail)


def summary_facts(run: LoggedRun) -> dict[str, str]:
    """Return the facts at the top of a run's overview, by their labels; empty ones are left out."""
    fit = run.last_fit
    facts: dict[str, str] = {}
    if fit is not None:
        facts = {
            "module": text(fit.start, "module"),
            "epochs": f"{fit.last_count('epoch'):,}" + _of_maximum(fit, "max_epochs"),
            "steps": f"{fit.last_count('global_step'):,}" + _of_maximum(fit, "max_steps"),
            "started": local_time(run.fits[0].began),
            "last sign of life": local_time(fit.last_seen),
            "time": duration_words(run.seconds),
            "starts": f"{len(run.fits)}" if len(run.fits) > 1 else "",
            "why it stopped": text(fit.end, "stop_reason"),
        }
    facts["folder"] = str(run.folder)
    facts["goes on from"] = ", ".join(str(path) for path in run.earlier)
    return {label: value for label, value in facts.items() if value}


def _of_maximum(fit: JournaledRun, name: str) -> str:
    maximum = number(fit.start, name)
    return f" of {maximum:,.0f}" if maximum > 0 else ""


def start_rows(run: LoggedRun) -> list[StartRow]:
    """Return a row for each start of a run, in the order of time."""
    rows = []
    last_trained = 0  # the step that the fit before came to, in part in vain
    least = ""  # the words for a fit whose end is not on record: it may have come further
    for start in run.starts:
        first, last = int(number(start.start, "step")), start.last_count("step")
        description = start.stage
        if start.resumed_from:
            description += f", from {start.resumed_from}"
            if start.stage == "fit" and last_trained > first:
                again = count_with_noun(last_trained - first, "step")
                description += f" ({least}{again} trained again)"
        if start.stage == "fit":
            last_trained = last
            least = "" if start.end else "at least "
        host = text(as_mapping(start.start.get("hardware")), "host")
        rows.append(
            StartRow(
                began=start.began,
                description=description,
                first_step=first,
                last_step=last,
                is_ended=bool(start.end),
                seconds=max(0.0, start.last_seen - start.began),
                state=outcome_badge(start),
                process=f"{host}, process {number(start.start, 'pid'):.0f}",
            )
        )
    return rows


# --- metrics and hyperparameters ---


@dataclass(frozen=True, slots=True)
class MetricExtremes:
    """The last, lowest and highest value of a metric in one run.

    Attributes:
        name: the metric's name.
        run: the run's index.
        last: its last value.
        lowest: its lowest value.
        highest: its highest value.
        count: the number of its values.
    """

    name: str
    run: int
    last: CurvePoint
    lowest: CurvePoint
    highest: CurvePoint
    count: int


@dataclass(frozen=True, slots=True)
class HparamsTable:
    """The hyperparameters of all runs.

    Attributes:
        rows: a name and the value in each run; rows whose values differ come first.
        differing: the number of rows whose values differ.
    """

    rows: list[list[str]]
    differing: int


def metric_extremes(runs: Sequence[LoggedRun]) -> list[MetricExtremes]:
    """Return each metric's last, lowest and highest value in each run."""
    extremes = []
    for name in dict.fromkeys(name for run in runs for name in run.metrics.curves):
        for index, run in enumerate(runs):
            curve = run.metrics.curves.get(name)
            points = curve.points if curve is not None else []
            last = curve.last if curve is not None else None
            if curve is None or last is None or not points:
                continue
            lowest = min(points, key=lambda point: point.value)
            highest = max(points, key=lambda point: point.value)
            extremes.append(MetricExtremes(name, index, last, lowest, highest, curve.count))
    return extremes


def hparams_table(runs: Sequence[LoggedRun]) -> HparamsTable:
    """Return the hyperparameters of all runs in one table."""
    by_run = [flattened(run.hparams, ".") for run in runs]
    names = list(dict.fromkeys(name for values in by_run for name in values))
    # by their texts: lists and dicts cannot be members of a set
    differing = [name for name in names if len({repr(values.get(name)) for values in by_run}) > 1]
    equal = [name for name in names if name not in differing]
    rows = [
        [name, *(short_text(values[name]) if name in values else "-" for values in by_run)]
        for name in [*differing, *equal]
    ]
    return HparamsTable(rows, len(differing))


# --- environment, callbacks and plugins ---


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The environment of a run's last training.

    Attributes:
        facts: the command, code, versions and hardware, by their labels.
        versions: the versions of packages.
        earlier: the facts that were different at earlier starts.
        config: the config that the command line resolved, as its file; empty without one.
    """

    facts: dict[str, str]
    versions: dict[str, str]
    earlier: list[str]
    config: str


@dataclass(frozen=True, slots=True)
class CallbackTables:
    """The callbacks and plugins of a run's last training.

    Attributes:
        callbacks: rows of name, supplier, band, and the reason why it was disabled.
        plugins: rows of distribution, entry point, status, reason, and the time to load it.
    """

    callbacks: list[list[str]]
    plugins: list[list[str]]


def run_environment(run: LoggedRun) -> RunEnvironment | None:
    """Return the environment of the last training, and the facts that have changed."""
    fit = run.last_fit
    if fit is None:
        return None
    facts = _environment_facts(fit.start)
    versions = {
        str(n): str(version) for n, version in as_mapping(fit.start.get("versions")).items()
    }
    changed = []
    for earlier in run.fits:
        earlier_facts = _environment_facts(earlier.start)
        for name in facts:
            if earlier is not fit and earlier_facts.get(name) != facts[name]:
                changed.append(f"{name}: {earlier_facts.get(name) or 'nothing'}")
    present = {name: value for name, value in facts.items() if value}
    return RunEnvironment(
        present, versions, list(dict.fromkeys(changed)), text(fit.start, "config")
    )


def callback_tables(run: LoggedRun) -> CallbackTables | None:
    """Return the callbacks that took part in the last training, and the plugins it looked at."""
    fit = run.last_fit
    if fit is None:
        return None
    callbacks = [
        [text(item, "name"), text(item, "supplier"), text(item, "band").lower(), ""]
        for item in _mappings(fit.start, "callbacks")
    ]
    callbacks += [
        [text(item, "name"), "", "", f"disabled in {text(item, 'hook')}: {text(item, 'error')}"]
        for item in _mappings(fit.end, "disabled")
    ]
    plugins = [
        [
            f"{text(item, 'distribution')} {text(item, 'version')}",
            text(item, "name"),
            text(item, "status"),
            text(item, "reason"),
            f"{number(item, 'seconds') * 1e3:,.1f} ms",
        ]
        for item in _mappings(fit.start, "plugins")
    ]
    return CallbackTables(callbacks, plugins)


def _environment_facts(start: dict[str, Any]) -> dict[str, str]:
    """Return the facts in a start record by their labels, unknown ones as empty strings."""
    hardware, versions, seeds = (
        as_mapping(start.get(key)) for key in ("hardware", "versions", "seeds")
    )
    git, variables = as_mapping(start.get("git")), as_mapping(start.get("environment"))
    changed = int(number(git, "changed_files"))
    code = f"{text(git, 'commit')[:_COMMIT_LENGTH]} on {text(git, 'branch')}" if git else "no git"
    code += f", {changed} changed files" if changed else ""
    gpus = [
        f"{text(gpu, 'name')} ({size_text(int(number(gpu, 'memory_bytes')))})"
        for gpu in _mappings(hardware, "gpus")
    ]
    command = start.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    return {
        "command": shell_line(words),
        "code": code,
        "Python": text(versions, "python"),
        "torch": text(versions, "torch"),
        "trainer_hooks": text(versions, "trainer_hooks"),
        "device": text(hardware, "device"),
        "precision": text(start, "precision"),
        "GPUs": ", ".join(gpus),
        "processor": f"{text(hardware, 'processor')}, {number(hardware, 'cores'):.0f} cores",
        "memory": size_text(int(number(hardware, "memory_bytes"))),
        "system": text(hardware, "system"),
        "host": text(hardware, "host"),
        "seeds": ", ".join(f"{name} {seed}" for name, seed in seeds.items() if seed is not None),
        "variables": ", ".join(f"{name}={value}" for name, value in variables.items()),
    }


# a journal may be damaged, or of another version: values of other types read as empty


def _mappings(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = record.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_PARTS = {
    "comparison": "Runs",
    "overview": "Overview",
    "curves": "Curves",
    "rates": "Learning rates",
    "gradients": "Gradients",
    "system": "System",
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

_SOURCES = {
    "rates": "a LearningRateMonitor",
    "gradients": "a callback that logs norms of gradients",
    "system": "a DeviceStatsMonitor",
    "speed": "the journal, once a run has trained for a second",
    "hooks": "Trainer(profile_hooks=True)",
    "hyperparameters": "self.save_hyperparameters()",
}
"""The source of each part that is left out unless something logged it."""


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

    def hide_machine(self) -> None:
        """Remove the names of hosts and the processes."""
        for start in self.starts:
            start.process = ""
        if self.environment is not None:
            self.environment.facts.pop("host", None)


@dataclass(frozen=True, slots=True)
class ReportPage:
    """The contents of the page.

    Attributes:
        title: its title.
        made: the time of its making, in seconds since 1970.
        version: the version of trainer_hooks that made it.
        parts: the headings of its parts, by the names of their templates.
        missing: the parts that are left out, with their sources.
        runs: the contents about each run; empty where there are too many.
        figures: the figures of metrics, by the names of their parts.
        timeline: the figure of the starts over time; None without a journal.
        values: the last, lowest and highest value of each metric.
        hparams: the hyperparameters.
        has_machine: whether paths and hosts are shown.
        is_live: whether it follows the runs.
        count: the number of runs.
        data: the data that its script draws.
    """

    title: str
    made: float
    version: str
    parts: dict[str, str]
    missing: list[str]
    runs: list[RunSection]
    figures: dict[str, list[Figure]]
    timeline: Figure | None
    values: list[MetricExtremes]
    hparams: HparamsTable
    has_machine: bool
    is_live: bool
    count: int
    data: dict[str, Any]


def make_page(
    runs: Sequence[LoggedRun],
    comparison: Comparison | None,
    link_to: Callable[[Path], str],
    *,
    with_machine: bool,
    is_live: bool = False,
) -> ReportPage:
    """Collect the contents of the page about one run, or about several beside each other.

    Args:
        runs: the runs.
        comparison: their comparison; None for one run.
        link_to: returns the address of a run's own page, empty where there is none.
        with_machine: whether absolute paths and the names of hosts are shown.
        is_live: whether the page follows the runs.
    """
    figures = FigureList()
    in_detail = runs if len(runs) <= MAX_IN_DETAIL else []
    charts = metric_charts(runs)
    by_part = {
        part: figures.curves([chart for chart in charts if chart.kind == kind])
        for part, kind in _KINDS.items()
    }
    by_part["speed"] = figures.curves(speed_charts(in_detail))
    timeline = figures.timeline(in_detail)
    sections = [_run_section(index, run, figures) for index, run in enumerate(in_detail)]
    if comparison is not None and comparison.notes and sections:
        sections[0].notes.extend(comparison.notes)
    hparams = hparams_table(in_detail)
    values = metric_extremes(in_detail)
    hide = MachineFilter.of([run.folder for run in runs], runs)
    data: dict[str, Any] = {
        "runs": [run.label for run in runs],
        "resumes": [
            [int(number(fit.start, "step")) for fit in run.fits if fit.resumed_from]
            for run in in_detail
        ],
        "charts": figures.charts,
        "axes": figures.axes,
        "table": None,
    }
    if comparison is not None:
        data["table"] = comparison_data(comparison, _states(runs, hide), link_to)
    if not with_machine:
        sections = [hide.data(section) for section in sections]
        for section in sections:
            section.hide_machine()
        hparams = hide.data(hparams)
        if data["table"] is not None:
            data["table"]["equal"] = hide.data(data["table"]["equal"])
    filled = _filled_parts(comparison is not None, by_part, sections, values, hparams)
    return ReportPage(
        title=_title(runs),
        made=time.time(),
        version=__version__,
        parts={name: title for name, title in _PARTS.items() if name in filled},
        missing=[
            f"{_PARTS[name].lower()} ({source})"
            for name, source in _SOURCES.items()
            if name not in filled and (in_detail or name in _KINDS)
        ],
        runs=sections,
        figures=by_part,
        timeline=timeline,
        values=values,
        hparams=hparams,
        has_machine=with_machine,
        is_live=is_live,
        count=len(runs),
        data=data,
    )


def collect_page(
    run_paths: Sequence[Path],
    folders: Sequence[Path],
    chosen: Objective | None,
    link_to: Callable[[Path], str],
    *,
    with_machine: bool,
    is_live: bool = False,
    read: RunReader = read_run,
) -> tuple[ReportPage, Sequence[LoggedRun], list[str]]:
    """Read runs, and return their page, the runs that it shows, and notes on those it leaves out.

    Args:
        run_paths: the folders that the user named.
        folders: the folders of the runs, which are these or lie in them.
        chosen: the metric that the user chose; None: that of the sweep, or a likely one.
        link_to: returns the address of a run's own page, empty where there is none.
        with_machine: whether absolute paths and the names of hosts are shown.
        is_live: whether the page follows the runs.
        read: reads a run.
    """
    comparison, notes = None, []
    if len(folders) == 1:
        most = points_for(count_metrics(folders[0]))
        runs = [read(folders[0], labels_of(folders)[0], most)]
    else:
        objective = chosen or sweep_objective(run_paths[0])
        named = [path for path in run_paths if path in folders]
        comparison = read_comparison(
            folders, named, objective, with_machine=with_machine, read=read
        )
        notes, runs = comparison.notes, comparison.runs
        if len(runs) == 1:
            # the others could not be read, or this one resumed them
            runs[0].label = labels_of([runs[0].folder])[0]
            runs[0].notes.extend(notes)
            comparison = None
    if comparison is None and chosen is not None:
        notes = [
            *notes,
            f"--monitor {chosen.metric}: one run is shown, which is compared with none.",
        ]
    page = make_page(runs, comparison, link_to, with_machine=with_machine, is_live=is_live)
    return page, runs, notes


_KINDS = {"curves": "metric", "rates": "rate", "gradients": "gradient", "system": "system"}
"""The parts with curves of metrics, and the kind of their charts."""


def _title(runs: Sequence[LoggedRun]) -> str:
    labels = ", ".join(run.label for run in runs)
    return labels if len(runs) == 1 or len(labels) <= _MAX_TITLE else f"{len(runs):,} runs"


def _states(runs: Sequence[LoggedRun], hide: MachineFilter) -> list[dict[str, Any]]:
    """Return the state of each run, and why it stopped, as the page's script reads it."""
    states = []
    for run in runs:
        badge = None if run.last_fit is None else outcome_badge(run.last_fit)
        reason = "" if run.last_fit is None else text(run.last_fit.end, "stop_reason")
        detail = "" if badge is None else printable(hide.text(badge.detail or reason))
        states.append(
            {
                "state": "" if badge is None else badge.outcome,
                "tone": "" if badge is None else badge.tone,
                "detail": detail,
            }
        )
    return states


def _filled_parts(
    is_comparison: bool,
    figures: dict[str, list[Figure]],
    runs: list[RunSection],
    values: list[MetricExtremes],
    hparams: HparamsTable,
) -> set[str]:
    """Return the names of the parts that have contents."""
    contents: dict[str, Any] = {
        **figures,
        "comparison": is_comparison,
        "overview": runs,
        "values": values,
        "timeline": any(run.starts for run in runs),
        "hooks": any(run.costs for run in runs),
        "checkpoints": any(run.checkpoints for run in runs),
        "samples": any(run.samples for run in runs),
        "hyperparameters": hparams.rows,
        "environment": any(run.environment for run in runs),
        "plugins": any(run.supplied for run in runs),
        "notes": any(run.notes for run in runs),
    }
    return {name for name, content in contents.items() if content}


def _run_section(index: int, run: LoggedRun, figures: FigureList) -> RunSection:
    # these readers add to run.notes, the very list that the section shows
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


def render_page(page: ReportPage) -> str:
    """Render the page as HTML.

    Raises:
        ModuleNotFoundError: Jinja is not installed.
    """
    environment = _environment()
    assert environment.loader is not None
    # as it is: the braces of a minified script would be taken for those of a template
    uplot, _, _ = environment.loader.get_source(environment, "uPlot.iife.min.js")
    return environment.get_template("page.html").render(page=page, uplot=uplot)


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trainer_hooks.cli.report"),
        autoescape=True,
        # a misspelt name in a template raises, and leaves no gap in the page
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
    # NaN is no JSON: one value would keep the browser from reading any of the data
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _visible(value: object) -> object:
    """Return a value with its control characters written out; keep markup as it is."""
    # what macros return has this method, and was made visible piece by piece
    return value if hasattr(value, "__html__") else printable(value)
