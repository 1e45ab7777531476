"""The tables of the report as data: starts, metrics, hyperparameters, environment, plugins."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal_reader import Outcome, number, text
from trainer_hooks.cli.values import count_with_noun, short_text, size_text
from trainer_hooks.hooks.profile import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.report.journal_reader import JournaledRun
    from trainer_hooks.cli.report.logged_run import LoggedRun
    from trainer_hooks.cli.report.metrics import CurvePoint

__all__ = [
    "CallbackTables",
    "HparamsTable",
    "MetricExtremes",
    "OutcomeBadge",
    "RunEnvironment",
    "StartRow",
    "callback_tables",
    "duration_words",
    "hparams_table",
    "local_time",
    "metric_extremes",
    "outcome_badge",
    "run_environment",
    "start_rows",
    "summary_facts",
]

_MINUTE, _HOUR = 60, 3600
_COMMIT_LENGTH = 12
_TONES = {
    Outcome.FINISHED: "good",
    Outcome.RUNNING: "live",
    Outcome.UNKNOWN: "live",
    Outcome.SIGNAL: "warn",
    Outcome.FAILED: "bad",
    Outcome.KILLED: "bad",
}
"""The style of each outcome in the page's style sheet."""


def local_time(seconds: float) -> str:
    """Format a time, in seconds since 1970, as local time; an empty string for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds > 0 else ""


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


@dataclass(frozen=True, slots=True)
class StartRow:
    """A row of the table of starts.

    Attributes:
        began: the time of the start, in seconds since 1970.
        description: the stage, and the checkpoint that it resumed from.
        first_step: the step at its beginning.
        last_step: the step that it came to.
        seconds: its duration.
        state: its outcome.
        process: the machine and the process id.
    """

    began: float
    description: str
    first_step: int
    last_step: int
    seconds: float
    state: OutcomeBadge
    process: str


def outcome_badge(run: JournaledRun) -> OutcomeBadge:
    """Return the outcome of a start, with its error or signal."""
    error = run.end.get("error")
    detail = text(run.end, "signal")
    if isinstance(error, dict):
        detail = f"{text(error, 'type')}: {text(error, 'message')}"
    return OutcomeBadge(str(run.outcome), _TONES[run.outcome], detail)


def summary_facts(run: LoggedRun) -> dict[str, str]:
    """Return the facts at the top of a run's overview, by their labels; empty ones are left out."""
    fit = run.last_fit
    facts: dict[str, str] = {}
    if fit is not None:
        seconds = sum(max(0.0, start.last_seen - start.began) for start in run.fits)
        facts = {
            "module": text(fit.start, "module"),
            "epochs": f"{fit.last_count('epoch'):,}" + _of_maximum(fit, "max_epochs"),
            "steps": f"{fit.last_count('global_step'):,}" + _of_maximum(fit, "max_steps"),
            "started": local_time(run.fits[0].began),
            "last sign of life": local_time(fit.last_seen),
            "time": duration_words(seconds),
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
    for start in run.starts:
        first, last = int(number(start.start, "step")), start.last_count("step")
        description = start.stage
        if start.resumed_from:
            description += f", from {start.resumed_from}"
            if start.stage == "fit" and last_trained > first:
                description += f" ({count_with_noun(last_trained - first, 'step')} trained again)"
        if start.stage == "fit":
            last_trained = last
        host = text(_mapping(start.start, "hardware"), "host")
        rows.append(
            StartRow(
                began=start.began,
                description=description,
                first_step=first,
                last_step=last,
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
            if curve is None or not points:
                continue
            lowest = min(points, key=lambda point: point.value)
            highest = max(points, key=lambda point: point.value)
            extremes.append(MetricExtremes(name, index, points[-1], lowest, highest, curve.count))
    return extremes


def hparams_table(runs: Sequence[LoggedRun]) -> HparamsTable:
    """Return the hyperparameters of all runs in one table."""
    by_run = [dict(_flatten(run.hparams)) for run in runs]
    names = list(dict.fromkeys(name for values in by_run for name in values))
    differing = [name for name in names if len({repr(values.get(name)) for values in by_run}) > 1]
    equal = [name for name in names if name not in differing]
    rows = [
        [name, *(short_text(values[name]) if name in values else "-" for values in by_run)]
        for name in [*differing, *equal]
    ]
    return HparamsTable(rows, len(differing))


def _flatten(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """List the items of nested dicts with the dotted paths of their keys."""
    # not `cli.values.flat`, which leaves None and empty dicts out: they are hyperparameters, too
    items: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            items += _flatten(value, f"{prefix}{name}.")
        else:
            items.append((f"{prefix}{name}", value))
    return items


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
    versions = {str(n): str(version) for n, version in _mapping(fit.start, "versions").items()}
    changed = []
    for earlier in run.fits:
        earlier_facts = _environment_facts(earlier.start)
        for name in facts:
            if earlier is not fit and earlier_facts.get(name) != facts[name]:
                changed.append(f"{name}: {earlier_facts.get(name) or 'nothing'}")
    known = {name: value for name, value in facts.items() if value}
    return RunEnvironment(known, versions, list(dict.fromkeys(changed)), text(fit.start, "config"))


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
    hardware, versions, seeds = (_mapping(start, key) for key in ("hardware", "versions", "seeds"))
    git, variables = _mapping(start, "git"), _mapping(start, "environment")
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
        "command": shlex.join(words),
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


def _mapping(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _mappings(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = record.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
