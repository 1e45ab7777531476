"""What the tables of the report tell, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal import Outcome, number, text
from trainer_hooks.cli.report.wording import lasting, moment
from trainer_hooks.cli.values import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.report.journal import Session
    from trainer_hooks.cli.report.metrics import Point
    from trainer_hooks.cli.report.run import Run

__all__ = [
    "Hparams",
    "Start",
    "State",
    "Value",
    "hparams_of",
    "starts_of",
    "state_of",
    "summary_of",
    "values_of",
]

_TONES = {
    Outcome.FINISHED: "good",
    Outcome.RUNNING: "live",
    Outcome.UNKNOWN: "live",
    Outcome.SIGNAL: "warn",
    Outcome.FAILED: "bad",
    Outcome.KILLED: "bad",
}


@dataclass(frozen=True, slots=True)
class State:
    """How a start went.

    Attributes:
        outcome: in a word or two.
        tone: the style that says whether that is good.
        detail: the error or the signal, or an empty string.
    """

    outcome: str
    tone: str
    detail: str


@dataclass(frozen=True, slots=True)
class Value:
    """What became of a metric in one run.

    Attributes:
        name: the metric.
        run: the run's number.
        last: its last value.
        lowest: its lowest.
        highest: its highest.
        count: how many there were.
    """

    name: str
    run: int
    last: Point
    lowest: Point
    highest: Point
    count: int


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a run.

    Attributes:
        began: when, in seconds since 1970.
        what: the stage, and from where it went on.
        first_step: the step at which it began.
        last_step: the step that it came to.
        seconds: how long it took.
        state: how it went.
        where: the machine and the process.
    """

    began: float
    what: str
    first_step: int
    last_step: int
    seconds: float
    state: State
    where: str


@dataclass(frozen=True, slots=True)
class Hparams:
    """The hyperparameters of all runs.

    Attributes:
        rows: name and values; of several runs, what differs comes first.
        differing: how many differ.
    """

    rows: list[list[str]]
    differing: int


def state_of(session: Session) -> State:
    """Return how a start went."""
    error = session.end.get("error")
    detail = text(session.end, "signal")
    if isinstance(error, dict):
        detail = f"{text(error, 'type')}: {text(error, 'message')}"
    return State(str(session.outcome), _TONES[session.outcome], detail)


def summary_of(run: Run) -> dict[str, str]:
    """Return what is said of a run first: names, and what they stand for."""
    fit = run.last_fit
    told: dict[str, str] = {}
    if fit is not None:
        seconds = sum(max(0.0, s.last_seen - s.began) for s in run.fits)
        told = {
            "module": text(fit.start, "module"),
            "epochs": f"{fit.place('epoch'):,}" + _of(fit, "max_epochs"),
            "steps": f"{fit.place('global_step'):,}" + _of(fit, "max_steps"),
            "started": moment(run.fits[0].began),
            "last sign of life": moment(fit.last_seen),
            "time": lasting(seconds),
            "starts": f"{len(run.fits)}" if len(run.fits) > 1 else "",
            "why it stopped": text(fit.end, "stop_reason"),
        }
    told["folder"] = str(run.folder)
    told["goes on from"] = ", ".join(str(path) for path in run.earlier)
    return {name: value for name, value in told.items() if value}


def _of(fit: Session, name: str) -> str:
    most = number(fit.start, name)
    return f" of {most:,.0f}" if most > 0 else ""


def values_of(runs: Sequence[Run]) -> list[Value]:
    """Return each metric's last, lowest and highest value in each run."""
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.metrics.curves):
        for index, run in enumerate(runs):
            curve = run.metrics.curves.get(name)
            points = curve.points if curve is not None else []
            if curve is None or not points:
                continue
            lowest = min(points, key=lambda point: point.value)
            highest = max(points, key=lambda point: point.value)
            found.append(Value(name, index, points[-1], lowest, highest, curve.count))
    return found


def starts_of(run: Run) -> list[Start]:
    """Return all starts of a run, and how each ended."""
    found = []
    lost_from = 0
    for session in run.sessions:
        began, ended = int(number(session.start, "step")), session.place("step")
        what = session.stage
        if session.resumed_from:
            what += f", from {session.resumed_from}"
            if session.stage == "fit" and lost_from > began:
                what += f" ({counted(lost_from - began, 'step')} trained again)"
        if session.stage == "fit":
            lost_from = ended
        found.append(
            Start(
                began=session.began,
                what=what,
                first_step=began,
                last_step=ended,
                seconds=max(0.0, session.last_seen - session.began),
                state=state_of(session),
                where=f"{text(_hardware(session), 'host')}, "
                f"process {number(session.start, 'pid'):.0f}",
            )
        )
    return found


def _hardware(session: Session) -> dict[str, Any]:
    found = session.start.get("hardware")
    return found if isinstance(found, dict) else {}


def hparams_of(runs: Sequence[Run]) -> Hparams:
    """Return the hyperparameters; of several runs, what differs comes first."""
    flat = [dict(_flat(run.hparams)) for run in runs]
    names = list(dict.fromkeys(name for values in flat for name in values))
    differing = [name for name in names if len({repr(values.get(name)) for values in flat}) > 1]
    others = [name for name in names if name not in differing]
    rows = [
        [name, *(shortened(values[name]) if name in values else "-" for values in flat)]
        for name in [*differing, *others]
    ]
    return Hparams(rows, len(differing))


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested values with their paths as names."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found
