"""Draw curves as characters."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks._text import printable
from trainer_hooks.cli.report.run import Run, labels_of, read_run
from trainer_hooks.errors import MetricError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Drawing", "draw", "smoothed"]

_POINTS = 2000
_WIDTH, _HEIGHT = 80, 24
_MOST_WIDE, _MOST_HIGH = 200, 40
_LEAST_HIGH = 10
_LISTED = 40
_TICKS = 6
_BESIDE = 14
"""Columns that the y axis takes at most, and the frame."""
_MARKERS = "*+ox#@%&"


@dataclass(frozen=True, slots=True)
class Drawing:
    """How to draw.

    Attributes:
        is_log: whether the y axis is logarithmic; values from 0 down are left out.
        smoothing: how much of what it was a moving mean keeps, from 0 to under 1.
        is_by_epoch: whether the x axis counts epochs.
    """

    is_log: bool = False
    smoothing: float = 0.0
    is_by_epoch: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    x: list[float]
    y: list[float]


def draw(folders: Sequence[Path], names: Sequence[str], how: Drawing) -> None:
    """Print a plot of the metrics `names` of all runs.

    Raises:
        MetricError: no run has such a metric, or none of its values can be drawn; or no name was
            given.
        RunFolderError: a folder is not a run's.
        ModuleNotFoundError: plotext is not installed.
    """
    runs = [
        read_run(folder, label, _POINTS, [f for f in folders if f != folder], hparams=False)
        for folder, label in zip(folders, labels_of(folders), strict=True)
    ]
    known = list(dict.fromkeys(name for run in runs for name in run.metrics.curves))
    if not names:
        raise MetricError(f"no metric was named: name one or more. {_listed(known)}")
    for name in names:
        if name not in known:
            where = "the run" if len(runs) == 1 else "any of the runs"
            raise MetricError(
                f"metric {name!r} is not in {where}.{nearest(name, known)} {_listed(known)}"
            )
    lines = [line for run in runs for name in names for line in _lines(run, name, runs, names, how)]
    if not lines:
        rule = "above 0" if how.is_log else "finite"
        raise MetricError(f"none of the values of {', '.join(names)} is {rule}: nothing to draw.")
    _show(lines, ", ".join(names), how)


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Return a moving mean in which the first values weigh no more than the others."""
    # as pandas' ewm(alpha=1 - weight), which is much to install for five lines
    means, mean, share = [], 0.0, 1.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        share *= weight
        means.append(mean / (1 - share))
    return means


def _lines(
    run: Run, name: str, runs: Sequence[Run], names: Sequence[str], how: Drawing
) -> list[_Line]:
    """Return the line of a metric, or nothing where a run has none."""
    curve = run.metrics.curves.get(name)
    points = curve.points if curve is not None else []
    steps = [point.step for point in points]
    axis = run.metrics.epochs
    if how.is_by_epoch and not axis:
        raise MetricError(f"{run.label} has logged no epochs: leave --x epoch out.")
    x = axis.places(steps) if how.is_by_epoch else [float(step) for step in steps]
    y = smoothed([point.value for point in points], how.smoothing)
    kept = [(a, b) for a, b in zip(x, y, strict=True) if not how.is_log or b > 0]
    if not kept:
        return []
    parts = [run.label] if len(runs) > 1 else []
    parts += [name] if len(names) > 1 or not parts else []
    return [_Line(": ".join(parts), [a for a, _ in kept], [b for _, b in kept])]


def _show(lines: Sequence[_Line], title: str, how: Drawing) -> None:
    import plotext

    is_terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size((_WIDTH, _HEIGHT)) if is_terminal else (_WIDTH, _HEIGHT)
    figure = plotext.figure
    figure.clear()
    width = min(size[0], _MOST_WIDE)
    figure.plot_size(width, max(_LEAST_HIGH, min(size[1] - 2, _MOST_HIGH)))
    figure.title(printable(title))
    figure.label("epochs" if how.is_by_epoch else "step", axis="x")
    xs, ys = [x for line in lines for x in line.x], [y for line in lines for y in line.y]
    figure.ruler("x").ticks(*_ticks(min(xs), max(xs)))
    if how.is_log and min(ys) < max(ys):
        figure.ruler("y").scale("log")
    else:
        figure.ruler("y").ticks(*_ticks(min(ys), max(ys)))
    figure.theme("simple" if is_terminal else "colorless")
    for index, line in enumerate(lines):
        # without colours, lines are told apart by what they are drawn with
        marker = "hd" if is_terminal or len(lines) == 1 else _MARKERS[index % len(_MARKERS)]
        signal = figure.signal(line.x, line.y, marker=marker)
        signal.lines()
        if len(lines) > 1:
            signal.label(printable(line.label)[: width // 2])
        figure.draw(signal)
    figure.legend(x=width - _BESIDE, y=0, ha="right", va="top")
    drawn: str = figure.build().string(colorless=not is_terminal)
    figure.clear()
    encoding = sys.stdout.encoding or "utf-8"
    print(drawn.encode(encoding, "replace").decode(encoding))


def _ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return round numbers from `low` to `high`, and how they are written."""
    # plotext's own are not round, and matplotlib's locator is much to install
    size = high - low
    if size <= 0:
        return [low], [f"{low:.6g}"]
    unit = 10.0 ** math.floor(math.log10(size / _TICKS))
    step = next(unit * n for n in (1, 2, 5, 10) if size / (unit * n) <= _TICKS)
    count = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [n * step for n in count], [f"{n * step:.6g}" for n in count]


def _listed(known: Sequence[str]) -> str:
    if not known:
        return "Nothing was logged."
    listed = ", ".join(map(printable, known[:_LISTED]))
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"There are: {listed}{more}."
