"""The parts of the report that are tables: all that is not a chart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.checkpoints import checkpoints_of
from trainer_hooks.cli.report.html import Html, element, escaped, facts, joined, table
from trainer_hooks.cli.report.journal import Outcome, number, text
from trainer_hooks.cli.values import counted, shortened, size_text
from trainer_hooks.hooks import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.report.costs import Costs
    from trainer_hooks.cli.report.journal import Session
    from trainer_hooks.cli.report.run import Run

__all__ = [
    "chip",
    "length",
    "moment",
    "show_checkpoints",
    "show_costs",
    "show_hparams",
    "show_timeline",
    "show_values",
    "summary_of",
]

_MINUTE, _HOUR = 60, 3600
_SHOWN_COSTS = 40
_TONES = {
    Outcome.FINISHED: "good",
    Outcome.RUNNING: "live",
    Outcome.UNKNOWN: "live",
    Outcome.SIGNAL: "warn",
    Outcome.FAILED: "bad",
    Outcome.KILLED: "bad",
}


def moment(seconds: float) -> str:
    """Return a moment in the local time, or an empty string for none."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds > 0 else ""


def length(seconds: float) -> str:
    """Return a length of time in words that are short."""
    if seconds < _MINUTE:
        return duration(seconds)
    minutes, rest = divmod(round(seconds), _MINUTE)
    if seconds < _HOUR:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _when(seconds: float) -> Html:
    return element("span", moment(seconds), class_="whole")


def chip(index: int, label: str) -> Html:
    """Return a run's name with its colour."""
    dot = element("span", class_=f"dot c{index % 10}", aria_hidden="true")
    return element("span", dot, label, class_="chip")


def summary_of(index: int, run: Run, *, is_several: bool) -> Html:
    """Return a box that says how a run stands."""
    fit = run.last_fit
    heading = element("h3", chip(index, run.label) if is_several else run.label)
    told: dict[str, object] = {"folder": str(run.folder)}
    if fit is not None:
        seconds = sum(max(0.0, s.last_seen - s.began) for s in run.fits)
        told = {
            "state": _outcome(fit),
            "module": text(fit.start, "module"),
            "epochs": f"{fit.place('epoch'):,}" + _of(fit, "max_epochs"),
            "steps": f"{fit.place('global_step'):,}" + _of(fit, "max_steps"),
            "started": moment(run.fits[0].began),
            "last sign of life": moment(fit.last_seen),
            "time": length(seconds),
            "starts": f"{len(run.fits)}" if len(run.fits) > 1 else "",
            "why it stopped": text(fit.end, "stop_reason"),
            **told,
        }
    if run.earlier:
        told["goes on from"] = ", ".join(str(path) for path in run.earlier)
    return element("article", heading, facts(told), class_="card")


def _of(fit: Session, name: str) -> str:
    most = number(fit.start, name)
    return f" of {most:,.0f}" if most > 0 else ""


def _outcome(session: Session) -> Html:
    error = session.end.get("error")
    detail = text(session.end, "signal")
    if isinstance(error, dict):
        detail = f"{text(error, 'type')}: {text(error, 'message')}"
    badge = element("span", str(session.outcome), class_=f"badge {_TONES[session.outcome]}")
    return joined([badge, f" {detail}" if detail else ""])


def show_values(runs: Sequence[Run]) -> Html:
    """Return a table of each metric's last, lowest and highest value."""
    names = list(dict.fromkeys(name for run in runs for name in run.metrics.curves))
    rows = []
    for name in names:
        for index, run in enumerate(runs):
            curve = run.metrics.curves.get(name)
            points = curve.points if curve is not None else []
            if curve is None or not points:
                continue
            low = min(points, key=lambda point: point.value)
            high = max(points, key=lambda point: point.value)
            row: list[object] = [name]
            if len(runs) > 1:
                row.append(chip(index, run.label))
            row += [f"{points[-1].value:.6g}", f"{low.value:.6g}", f"{low.step:,}"]
            row += [f"{high.value:.6g}", f"{high.step:,}", f"{curve.count:,}"]
            rows.append(row)
    if not rows:
        return element("p", "Nothing was logged.", class_="note")
    head = ["metric", "last", "lowest", "at step", "highest", "at step", "values"]
    if len(runs) > 1:
        head.insert(1, "run")
    first = len(head) - 6
    return table(head, rows, label="values of the metrics", right=range(first, len(head)))


def show_timeline(run: Run) -> Html:
    """Return a table of all starts of a run, and how each ended."""
    rows = []
    lost_from = 0
    for session in run.sessions:
        began, ended = int(number(session.start, "step")), session.place("step")
        how = f"{session.stage}"
        if session.resumed_from:
            how += f", from {session.resumed_from}"
            if session.stage == "fit" and lost_from > began:
                how += f" ({counted(lost_from - began, 'step')} trained again)"
        if session.stage == "fit":
            lost_from = ended
        rows.append(
            [
                _when(session.began),
                how,
                f"{began:,} to {ended:,}",
                length(max(0.0, session.last_seen - session.began)),
                _outcome(session),
                f"{text(_hardware(session), 'host')}, process {number(session.start, 'pid'):.0f}",
            ]
        )
    if not rows:
        return element("p", "No journal was kept.", class_="note")
    head = ["started", "what", "steps", "length", "how it ended", "where"]
    return table(head, rows, label=f"starts of {run.label}")


def _hardware(session: Session) -> dict[str, Any]:
    found = session.start.get("hardware")
    return found if isinstance(found, dict) else {}


def show_costs(costs: Costs) -> Html:
    """Return a table of what each callback took at each hook."""
    rows = [
        [
            item.callback,
            item.supplier,
            item.hook,
            f"{item.calls:,}",
            duration(item.total),
            duration(item.mean),
            duration(item.longest),
            "" if item.share is None else f"{item.share:.2%}",
        ]
        for item in costs.spent[:_SHOWN_COSTS]
    ]
    head = ["callback", "from", "hook", "calls", "total", "mean", "longest", "share"]
    told = (
        f"Own time on the host, by {costs.source.name}; share of {costs.batches:,} training "
        f"batches, which took {length(costs.batch_seconds)}."
    )
    if len(costs.spent) > _SHOWN_COSTS:
        told += f" The {_SHOWN_COSTS} longest of {len(costs.spent)} are listed."
    return joined(
        [
            element("p", told, class_="note"),
            table(head, rows, label="time by callback and hook", right=range(3, 8)),
        ]
    )


def show_checkpoints(run: Run) -> Html:
    """Return a table of what each checkpoint holds."""
    files, more = checkpoints_of(run)
    if not files:
        return element("p", "No checkpoint is left.", class_="note")
    rows, marked = [], []
    for number_, file in enumerate(files):
        is_inside = file.path.is_relative_to(run.folder.absolute())
        name = file.path.relative_to(run.folder.absolute()) if is_inside else file.path
        if "best" in file.marks:
            marked.append(number_)
        badges = [element("span", mark, class_="badge good") for mark in file.marks]
        holds = element("span", file.fault, class_="bad")
        if not file.fault:
            holds = _more(", ".join(file.parts), file.holds)
        metrics = [f"{metric} {value}" for metric, value in file.metrics.items()]
        rows.append(
            [
                joined([escaped(name), *badges], " "),
                _when(file.saved_at),
                "" if file.fault else f"{file.epoch:,}",
                "" if file.fault else f"{file.step:,}",
                size_text(file.size),
                holds,
                _more(counted(len(metrics), "metric"), metrics) if metrics else "",
            ]
        )
    head = ["file", "saved", "epochs", "steps", "size", "holds", "metrics"]
    shown = table(head, rows, label=f"checkpoints of {run.label}", right=(2, 3, 4), marked=marked)
    if more:
        return joined([shown, element("p", f"{more:,} older ones are not listed.", class_="note")])
    return shown


def _more(summary: str, lines: Sequence[str]) -> Html:
    """Return lines that are shown when they are asked for."""
    listed = element("ul", *(element("li", line) for line in lines))
    return element("details", element("summary", summary), listed)


def show_hparams(runs: Sequence[Run]) -> Html:
    """Return a table of the hyperparameters; of several runs, what differs comes first."""
    flat = [dict(_flat(run.hparams)) for run in runs]
    names = list(dict.fromkeys(name for values in flat for name in values))
    if not names:
        return element("p", "None were logged: call self.save_hyperparameters().", class_="note")
    differing = [name for name in names if len({repr(values.get(name)) for values in flat}) > 1]
    others = [name for name in names if name not in differing]
    rows = [
        [name, *(shortened(values[name]) if name in values else "-" for values in flat)]
        for name in [*differing, *others]
    ]
    head = ["name", *(run.label for run in runs)] if len(runs) > 1 else ["name", "value"]
    shown = table(head, rows, label="hyperparameters", marked=range(len(differing)))
    if len(runs) == 1:
        return shown
    told = f"Those that differ stand first: {len(differing)} of {len(names)}."
    if not differing:
        told = "All are the same."
    return joined([element("p", told, class_="note"), shown])


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested values with their paths as names."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found
