"""Compare runs: names by the settings that differ, the table, groups of folds and seeds."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainer_hooks.callbacks.reporting.run_config import with_numbered_lists
from trainer_hooks.checkpoint.inspection import as_mapping
from trainer_hooks.cli.report.charts import kind_and_title, most_curves, points_for
from trainer_hooks.cli.report.logged_run import (
    SWEEP_JOURNAL,
    RunFolderError,
    count_metrics,
    labels_of,
    read_run,
    text,
)
from trainer_hooks.cli.report.machine import MachineFilter, common_folder
from trainer_hooks.cli.values import short_text
from trainer_hooks.errors import TrainerHooksError, UsageError, did_you_mean
from trainer_hooks.loggers.conversion import flattened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from trainer_hooks.cli.report.logged_run import LoggedRun, RunReader

MAX_IN_DETAIL = 10
"""The number of runs up to which a page has all that it has about a single run."""

_MAX_DRAWN = 100
_MAX_RUNS = 10_000
_MAX_NAMED = 4
"""The number of settings in a run's name, unless more are needed to tell the runs apart."""

_MAX_SETTINGS = 200
_FEWEST_POINTS = 8
_REPLICATE = re.compile(r"(?:.*[._])?(fold|seed)(?:_(?:everything|index|idx|id))?", re.IGNORECASE)
_REPLICATE_FOLDER = re.compile(r"(?:^|[^a-z])(fold|seed)[_=\- ]?(\d+)(?!\d)", re.IGNORECASE)
_PLACES = {"default_root_dir", "save_dir", "dirpath", "ckpt_path", "version", "log_dir"}
"""Settings that say where a run is, and not how it trains."""

_HIGHER_IS_BETTER = re.compile(
    r"acc|auc|auroc|f1|fbeta|precision|recall|iou|jaccard|dice|(?:^|[^a-z])map(?:[^a-z]|$)|bleu"
    r"|rouge|meteor|r2|score|psnr|ssim|reward|return|throughput|kappa|mcc|correlation|pearson"
    r"|spearman|sensitivity|specificity|hit_rate|ndcg|mrr",
    re.IGNORECASE,
)
_PREFERRED = (
    re.compile(r"(?:val|valid|validation)[_/.-]loss(?:_epoch)?", re.IGNORECASE),
    re.compile(r"(?:val|valid|validation)[_/.-].*loss.*", re.IGNORECASE),
    re.compile(r"(?:val|valid|validation)[_/.-].*", re.IGNORECASE),
    re.compile(r".*loss.*", re.IGNORECASE),
    re.compile(r".*"),
)
"""The metrics by which runs are compared if nothing says which, the most likely first."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric by which runs are compared.

    Attributes:
        metric: its name.
        mode: `"min"` or `"max"`, the values that are better.
        is_chosen: whether the user named it; it must then have been logged.
        is_of_sweep: whether a sweep looks for its best value; its trials stand in that order.
    """

    metric: str
    mode: str
    is_chosen: bool = False
    is_of_sweep: bool = False

    def key(self, value: float) -> float:
        """Return a key that sorts the best value first, and one that is no number last."""
        if math.isnan(value):
            return math.inf
        return value if self.mode == "min" else -value


@dataclass(slots=True)
class RunRow:
    """A run's row in the table of runs.

    Attributes:
        folder: its folder.
        settings: its hyperparameters and the values of its config, by dotted names.
        metrics: the last, lowest and highest value of each metric, by name.
        seconds: the time that its training took.
        steps: the optimizer steps.
        seed: the seed that `seed_everything` got; empty if it was not called.
        name: its name among the runs.
        replicate: the kinds `fold` and `seed`, each with its value.
        is_drawn: whether the page has its curves.
    """

    folder: Path
    settings: dict[str, Any]
    metrics: dict[str, tuple[float, float, float]]
    seconds: float
    steps: int
    seed: str
    name: str = ""
    replicate: dict[str, str] = field(default_factory=dict)
    is_drawn: bool = True

    def last(self, objective: Objective) -> float:
        """Return the last value of the objective's metric; NaN without one."""
        return self.metrics.get(objective.metric, (math.nan,))[0]

    def best(self, objective: Objective) -> float:
        """Return the best value of the objective's metric; NaN without one."""
        values = self.metrics.get(objective.metric)
        return math.nan if values is None else values[1 if objective.mode == "min" else 2]


@dataclass(slots=True)
class Comparison:
    """Several runs beside each other.

    Attributes:
        runs: the runs; the curves of those that are not drawn are left out.
        rows: their rows.
        differing: the settings whose values differ, by their full names, with the names shown.
        equal: the settings that are the same in all runs, with their values.
        objective: the metric by which they are compared; None if nothing was logged.
        notes: the runs that could not be read, and why.
    """

    runs: list[LoggedRun]
    rows: list[RunRow]
    differing: dict[str, str]
    equal: dict[str, Any]
    objective: Objective | None
    notes: list[str]


def read_comparison(
    folders: Sequence[Path],
    chosen: Collection[Path],
    objective: Objective | None,
    *,
    with_machine: bool,
    read: RunReader = read_run,
) -> Comparison:
    """Read several runs and compare them, more than ten in the order of their results.

    Args:
        folders: the folders of the runs.
        chosen: those that the user named; of the others, a run that another resumed is part of it.
        objective: the metric by which they are compared; None: the most likely one.
        with_machine: whether settings may hold absolute paths.
        read: reads a run.

    Raises:
        RunFolderError: there are too many runs.
        TrainerHooksError: none of them can be read.
        OSError: none of them can be read.
    """
    if len(folders) > _MAX_RUNS:
        raise RunFolderError(
            f"{len(folders):,} runs are more than the {_MAX_RUNS:,} that a page compares. Name "
            "fewer of them."
        )
    counts = dict.fromkeys(folders, 0)
    for folder in folders:
        # reading the run tells of a file that cannot be read
        with contextlib.suppress(OSError):
            counts[folder] = count_metrics(folder)
    is_large = len(folders) > _MAX_DRAWN or sum(counts.values()) > most_curves()
    runs, rows, notes = [], [], []
    failure: Exception | None = None
    for folder in folders:
        try:
            most = _FEWEST_POINTS if is_large else points_for(sum(counts.values()))
            run = read(folder, "", most, _others(chosen, folder))
        except (TrainerHooksError, OSError) as error:
            failure = error
            notes.append(f"{folder} is left out: {error}")
            continue
        rows.append(make_row(run))
        runs.append(run)
        if is_large:
            _drop_contents(run)
    if not rows and failure is not None:
        raise failure
    resumed = {path.resolve() for run in runs for path in run.earlier}
    shown = [
        (run, row)
        for run, row in zip(runs, rows, strict=True)
        if run.folder in chosen or run.folder.resolve() not in resumed
    ]
    filtered = MachineFilter.of([run.folder for run, _ in shown], [run for run, _ in shown])
    rows = [row for _, row in shown]
    comparison = compare_rows(rows, objective, *([] if with_machine else [filtered.text]))
    comparison.notes = notes
    comparison.runs = [run for run, _ in shown]
    _choose_drawn(comparison, counts, chosen, read, is_large=is_large)
    for run, row in zip(comparison.runs, comparison.rows, strict=True):
        run.label = row.name
    return comparison


def _choose_drawn(
    comparison: Comparison,
    counts: Mapping[Path, int],
    chosen: Collection[Path],
    read: RunReader,
    *,
    is_large: bool,
) -> None:
    """Sort trials and many runs by their results; read as many curves as the page has room for."""
    objective = comparison.objective
    is_many = len(comparison.rows) > MAX_IN_DETAIL
    if objective is not None and (is_many or objective.is_of_sweep):
        pairs = sorted(
            zip(comparison.rows, comparison.runs, strict=True),
            key=lambda pair: objective.key(pair[0].best(objective)),
        )
        comparison.rows, comparison.runs = [p[0] for p in pairs], [p[1] for p in pairs]
    if not is_large:
        return
    total = 0
    for index, row in enumerate(comparison.rows):
        total += counts[row.folder]
        row.is_drawn = index < _MAX_DRAWN and (total <= most_curves() or index < MAX_IN_DETAIL)
    drawn = [index for index, row in enumerate(comparison.rows) if row.is_drawn]
    most = points_for(sum(counts[comparison.rows[index].folder] for index in drawn))
    for index in drawn:
        folder = comparison.rows[index].folder
        # read a second time: the curves of all runs would not fit into memory
        comparison.runs[index] = read(folder, "", most, _others(chosen, folder))


def _others(chosen: Collection[Path], folder: Path) -> list[Path]:
    return [path for path in chosen if path != folder]


def _drop_contents(run: LoggedRun) -> None:
    """Drop all of a run that its row in a large table does not need."""
    run.metrics.curves.clear()
    run.hparams = {}
    run.notes.clear()
    for start in run.starts:
        start.samples.clear()
        start.saved.clear()
        start.start = {
            name: start.start[name] for name in ("stage", "hardware") if name in start.start
        }


def make_row(run: LoggedRun) -> RunRow:
    """Return the row of a run; it holds none of its curves."""
    metrics = {}
    for name, curve in run.metrics.curves.items():
        values = [point.value for point in curve.points]
        last = curve.last
        if last is not None:
            # a metric that was NaN throughout has a last value, and no lowest
            lowest, highest = (min(values), max(values)) if values else (math.nan, math.nan)
            metrics[name] = (last.value, lowest, highest)
    fit = run.last_fit
    seeds = {} if fit is None else as_mapping(fit.start.get("seeds"))
    seed = seeds.get("seed_everything")
    return RunRow(
        folder=run.folder,
        settings=_settings(run),
        metrics=metrics,
        seconds=run.seconds,
        steps=0 if fit is None else fit.last_count("global_step"),
        seed="" if seed is None else str(seed),
    )


def compare_rows(
    rows: Sequence[RunRow],
    objective: Objective | None,
    shorten: Callable[[str], str] = lambda text: text,
) -> Comparison:
    """Compare runs, and name each by the settings that differ.

    Args:
        rows: the runs.
        objective: the metric by which they are compared; None: the most likely one.
        shorten: returns a text as the page may show it.

    Raises:
        UsageError: no run logged the metric that the user chose.
    """
    for row in rows:
        row.settings = {
            name: shorten(value) if isinstance(value, str) else value
            for name, value in row.settings.items()
        }
    names = list(dict.fromkeys(name for row in rows for name in row.settings))
    # by their texts: lists and dicts cannot be members of a set
    columns = {name: [setting_text(row.settings, name) for row in rows] for name in names}
    different = [name for name in names if len(set(columns[name])) > 1]
    equal = {name: rows[0].settings[name] for name in names if len(set(columns[name])) == 1}
    # a hyperparameter that a config gave is there twice: `width`, and `model.width`
    seen: dict[tuple[str, ...], str] = {}
    for name in list(different):
        values = (_leaf(name), *columns[name])
        if seen.setdefault(values, name) != name:
            different.remove(name)
    leaves = [_leaf(name) for name in different]
    shown = {
        name: _leaf(name) if leaves.count(_leaf(name)) == 1 else name
        for name in different[:_MAX_SETTINGS]
    }
    logged = dict.fromkeys(name for row in rows for name in row.metrics)
    if objective is not None and objective.metric not in logged:
        if objective.is_chosen:
            hint = did_you_mean(objective.metric, logged)
            raise UsageError(
                f"metric {objective.metric!r} was not logged by any of the runs.{hint}"
            )
        objective = None
    _add_replicates(rows, shown)
    _add_names(rows, shown)
    return Comparison([], list(rows), shown, equal, objective or likely_objective(rows), [])


def likely_objective(rows: Sequence[RunRow]) -> Objective | None:
    """Return the metric that a callback of a config monitors, or the one whose name is likeliest.

    It is one that most of the runs logged: those that failed early logged few.
    """
    counts: dict[str, int] = {}
    for row in rows:
        for name in row.metrics:
            counts[name] = counts.get(name, 0) + 1
    if not counts:
        return None
    for row in rows:
        for key, value in row.settings.items():
            if _leaf(key) == "monitor" and value in counts:
                mode = row.settings.get(f"{key.removesuffix('monitor')}mode")
                return Objective(value, mode if mode in ("min", "max") else better_mode(value))
    names = [name for name, count in counts.items() if 2 * count >= max(counts.values())]
    name = next(name for pattern in _PREFERRED for name in names if pattern.fullmatch(name.strip()))
    return Objective(name, better_mode(name))


def better_mode(metric: str) -> str:
    """Return `"max"` for the name of an accuracy or a score, else `"min"`."""
    is_loss = "loss" in metric.lower() or "error" in metric.lower()
    return "max" if not is_loss and _HIGHER_IS_BETTER.search(metric) else "min"


def sweep_objective(folder: Path) -> Objective | None:
    """Return the metric of the sweep in a folder; None if it holds no sweep."""
    path = folder / SWEEP_JOURNAL
    if not path.is_file():
        return None
    # not by Optuna, which need not be installed: its journal is a file of JSON lines
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = as_mapping(json.loads(line))
            except (ValueError, RecursionError):
                continue  # the line that is being written
            definition = as_mapping(as_mapping(record.get("user_attr")).get("definition"))
            monitor, mode = text(definition, "monitor"), text(definition, "mode")
            if monitor:
                return Objective(monitor, "max" if mode == "max" else "min", is_of_sweep=True)
    return None


def comparison_data(
    comparison: Comparison, states: Sequence[dict[str, Any]], link_to: Callable[[Path], str]
) -> dict[str, Any]:
    """Return the table of runs as the page's script reads it.

    Args:
        comparison: the runs.
        states: the state of each run: `state`, `tone` and `detail`.
        link_to: returns the address of a run's own page, empty where there is none.
    """
    rows = comparison.rows
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    objective = comparison.objective
    modes = [better_mode(name) for name in metrics]
    if objective is not None and objective.metric in metrics:
        modes[metrics.index(objective.metric)] = objective.mode
    folders = labels_of([row.folder for row in rows])
    groups = _groups(comparison)
    return {
        "settings": list(comparison.differing.values()),
        "equal": [[name, short_text(value)] for name, value in comparison.equal.items()],
        "metrics": metrics,
        "modes": modes,
        "minor": [i for i, name in enumerate(metrics) if kind_and_title(name)[0] != "metric"],
        "monitor": metrics.index(objective.metric)
        if objective is not None and objective.metric in metrics
        else 0,
        "replicates": _indices(comparison, lambda leaf: bool(_REPLICATE.fullmatch(leaf))),
        "places": _indices(comparison, _PLACES.__contains__),
        "groups": [group for group in groups.values() if len(group["rows"]) > 1],
        "rows": [
            {
                "name": row.name,
                "folder": folder,
                "link": link_to(row.folder),
                "settings": [_plain(row.settings.get(name)) for name in comparison.differing],
                "metrics": [
                    [_finite(value) for value in row.metrics[name]] if name in row.metrics else None
                    for name in metrics
                ],
                "seconds": round(row.seconds, 1),
                "steps": row.steps,
                "drawn": row.is_drawn,
                **state,
            }
            for row, folder, state in zip(rows, folders, states, strict=True)
        ],
    }


def _indices(comparison: Comparison, is_wanted: Callable[[str], bool]) -> list[int]:
    """Return the places of some of the differing settings, chosen by the ends of their names."""
    return [i for i, name in enumerate(comparison.differing) if is_wanted(_leaf(name))]


def setting_text(settings: Mapping[str, Any], name: str) -> str:
    """Return a setting as a name shows it; an empty string if the run has none."""
    if name not in settings:
        return ""
    value = settings[name]
    return value if isinstance(value, str) else short_text(value)


def _settings(run: LoggedRun) -> dict[str, Any]:
    """Return the hyperparameters of a run, and the values of its config."""
    settings = flattened(run.hparams, ".")
    fit = run.last_fit
    config = _read_config(text(fit.start, "config")) if fit is not None else {}
    for name, value in flattened(with_numbered_lists(config), ".").items():
        # `model.init_args.width` is `model.width` on a command line
        settings.setdefault(".".join(p for p in name.split(".") if p != "init_args"), value)
    return settings


def _read_config(config: str) -> dict[str, Any]:
    if not config:
        return {}
    import yaml  # type: ignore[import-untyped]

    try:
        # the loader in C is ten times as fast; not every installation has it
        return as_mapping(yaml.load(config, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError:
        return {}  # a damaged journal


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _add_replicates(rows: Sequence[RunRow], shown: Mapping[str, str]) -> None:
    """Set the fold and the seed of each run: by its settings, its folder, or its journal."""
    for name in shown:
        if match := _REPLICATE.fullmatch(_leaf(name)):
            for row in rows:
                if value := setting_text(row.settings, name):
                    row.replicate.setdefault(match[1].lower(), value)
    paths = [row.folder.resolve() for row in rows]
    common = len(common_folder(paths).parts)
    for row, path in zip(rows, paths, strict=True):
        for part in path.parts[common:]:
            for kind, value in _REPLICATE_FOLDER.findall(part):
                row.replicate.setdefault(kind.lower(), str(int(value)))
    if not any(row.replicate for row in rows) and len({row.seed for row in rows}) > 1:
        for row in rows:
            if row.seed:
                row.replicate["seed"] = row.seed


def _add_names(rows: Sequence[RunRow], shown: Mapping[str, str]) -> None:
    """Name each run by the settings that differ, its fold and its seed, or else by its folder."""
    naming = _naming(shown)
    folders = labels_of([row.folder for row in rows])
    for count in range(min(_MAX_NAMED, len(naming)), len(naming) + 1):
        for row in rows:
            parts = [
                f"{shown[name]}={value}"
                for name in naming[:count]
                if (value := setting_text(row.settings, name))
            ]
            parts += [f"{kind} {value}" for kind, value in row.replicate.items()]
            row.name = ", ".join(parts)
        names = [row.name for row in rows]
        if len(set(names)) == len(names):
            break
    counts = Counter(names)
    for row, folder in zip(rows, folders, strict=True):
        if not row.name or counts[row.name] > 1:
            row.name = f"{row.name} ({folder})" if row.name else folder


def _naming(names: Iterable[str]) -> list[str]:
    """Return the settings that say how a run trains: no fold, no seed, no folder."""
    leaves = ((name, _leaf(name)) for name in names)
    return [name for name, leaf in leaves if not _REPLICATE.fullmatch(leaf) and leaf not in _PLACES]


def _groups(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Return the groups of runs that differ by fold and seed alone, by their shared settings."""
    naming = _naming(comparison.differing)
    groups: dict[str, dict[str, Any]] = {}
    for index, row in enumerate(comparison.rows):
        if not row.replicate:
            continue
        values = [(name, setting_text(row.settings, name)) for name in naming]
        key = repr((values, sorted(row.replicate)))
        name = ", ".join(f"{comparison.differing[n]}={value}" for n, value in values if value)
        kinds = " and ".join(f"{kind}s" for kind in row.replicate)
        group = groups.setdefault(key, {"name": name, "kinds": kinds, "rows": []})
        group["rows"].append(index)
    return groups


def own_page(page_folder: Path, folder: Path) -> str:
    """Return the address of a run's own page, relative to this page's folder, if it is there."""
    page = folder / "report.html"
    if not page.is_file():
        return ""
    path = os.path.relpath(page.resolve(), page_folder.resolve())
    # with a dot in front: no name of a folder is taken for the scheme of an address
    # as bytes: a name on disk need not be UTF-8
    return quote(os.fsencode(f"./{path}".replace(os.sep, "/")))


def _plain(value: Any) -> Any:
    """Return a setting for the script: a number as it is, all else as a text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(float(f"{value:.9g}")) if isinstance(value, float) else value
    return None if value is None else value if isinstance(value, str) else short_text(value)


def _finite(value: float) -> float | str:
    # JSON has no NaN and no infinity
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)
