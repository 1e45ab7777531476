"""Draw the curves of metrics on the terminal, as characters."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks._text import first_few, printable
from trainer_hooks.cli.report.logged_run import LoggedRun, labels_of, read_run
from trainer_hooks.errors import MetricError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MAX_POINTS = 2000
_WIDTH, _HEIGHT = 80, 24
_MAX_WIDTH, _MAX_HEIGHT = 200, 40
_MIN_HEIGHT = 10
_MAX_LISTED = 40
_MAX_TICKS = 6
_AXIS_WIDTH = 14
"""The most columns that the y axis and the frame take."""
_MARKERS = "*+ox#@%&"

_PLAIN = str.maketrans(
    {
        "\u2502": "|",
        "\u2500": "-",
        **dict.fromkeys("\u250c\u2510\u2514\u2518\u251c\u2524\u252c\u2534\u253c", "+"),
    }
)
"""The box characters of an axis in ASCII."""


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """The options of a plot.

    Attributes:
        is_log: whether the y axis is logarithmic; values of 0 and below are left out.
        smoothing: the weight of the past in the moving mean, from 0 to under 1.
        is_by_epoch: whether the x axis counts epochs instead of steps.
    """

    is_log: bool = False
    smoothing: float = 0.0
    is_by_epoch: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    """A curve to draw, with its entry in the legend."""

    label: str
    x: list[float]
    y: list[float]


def draw_metrics(folders: Sequence[Path], names: Sequence[str], options: PlotOptions) -> None:
    """Print a plot of some metrics of all runs.

    Args:
        folders: the folders of the runs.
        names: the names of the metrics.
        options: the axes and the smoothing.

    Raises:
        MetricError: no run has such a metric, or none of its values can be drawn; or no name was
            given.
        RunFolderError: a folder is not a run's.
        ModuleNotFoundError: plotext is not installed.
    """
    runs = [
        read_run(folder, label, _MAX_POINTS, [f for f in folders if f != folder], hparams=False)
        for folder, label in zip(folders, labels_of(folders), strict=True)
    ]
    available = list(dict.fromkeys(name for run in runs for name in run.metrics.curves))
    if not names:
        raise MetricError(f"no metric was named: name one or more. {_list_names(available)}")
    for name in names:
        if name not in available:
            where = "the run" if len(runs) == 1 else "any of the runs"
            hint = did_you_mean(name, available)
            raise MetricError(f"metric {name!r} is not in {where}.{hint} {_list_names(available)}")
    lines = [
        line for run in runs for name in names for line in _lines(run, name, runs, names, options)
    ]
    if not lines:
        rule = "above 0" if options.is_log else "finite"
        raise MetricError(f"none of the values of {', '.join(names)} is {rule}: nothing to draw.")
    _print_plot(lines, ", ".join(names), options)


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Return an exponential moving mean, corrected so that it does not lean to the first value."""
    # as pandas' ewm(alpha=1 - weight), which is much to install for five lines
    means, mean, share = [], 0.0, 1.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        share *= weight
        means.append(mean / (1 - share))
    return means


def _lines(
    run: LoggedRun, name: str, runs: Sequence[LoggedRun], names: Sequence[str], options: PlotOptions
) -> list[_Line]:
    """Return the line of a metric in a run; an empty list if it has no values to draw."""
    curve = run.metrics.curves.get(name)
    points = curve.points if curve is not None else []
    steps = [point.step for point in points]
    axis = run.metrics.epochs
    if options.is_by_epoch and not axis:
        raise MetricError(f"{run.label} has logged no epochs: leave --x epoch out.")
    x = axis.positions(steps) if options.is_by_epoch else [float(step) for step in steps]
    y = smoothed([point.value for point in points], options.smoothing)
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if not options.is_log or b > 0]
    if not pairs:
        return []
    parts = [run.label] if len(runs) > 1 else []
    parts += [name] if len(names) > 1 or not parts else []
    return [_Line(": ".join(parts), [a for a, _ in pairs], [b for _, b in pairs])]


def _print_plot(lines: Sequence[_Line], title: str, options: PlotOptions) -> None:
    import plotext

    is_terminal = sys.stdout.isatty()
    encoding = sys.stdout.encoding or "utf-8"
    # the console of Windows and old terminals may have neither blocks nor lines
    has_blocks = _can_show("\N{QUADRANT UPPER LEFT}\N{BOX DRAWINGS LIGHT VERTICAL}", encoding)
    # a file has no size of its own, and COLUMNS would give it that of the terminal
    size = shutil.get_terminal_size((_WIDTH, _HEIGHT)) if is_terminal else (_WIDTH, _HEIGHT)
    figure = plotext.figure
    figure.clear()  # plotext has one figure for the whole process
    width = min(size[0], _MAX_WIDTH)
    # two lines less than the terminal, for the prompt that follows
    figure.plot_size(width, max(_MIN_HEIGHT, min(size[1] - 2, _MAX_HEIGHT)))
    figure.title(printable(title))
    figure.label("epochs" if options.is_by_epoch else "step", axis="x")
    xs, ys = [x for line in lines for x in line.x], [y for line in lines for y in line.y]
    figure.ruler("x").ticks(*_ticks(min(xs), max(xs)))
    # plotext chooses the ticks of a logarithmic axis itself
    if options.is_log and min(ys) < max(ys):
        figure.ruler("y").scale("log")
    else:
        figure.ruler("y").ticks(*_ticks(min(ys), max(ys)))
    figure.theme("simple" if is_terminal else "colorless")
    for index, line in enumerate(lines):
        # without colours, each line needs a character of its own
        is_alone = is_terminal or len(lines) == 1
        marker = "hd" if has_blocks and is_alone else _MARKERS[index % len(_MARKERS)]
        signal = figure.signal(line.x, line.y, marker=marker)
        signal.lines()
        if len(lines) > 1:
            # a long name would hide the curves below the legend
            signal.label(printable(line.label)[: width // 2])
        figure.draw(signal)
    figure.legend(x=width - _AXIS_WIDTH, y=0, ha="right", va="top")
    drawn: str = figure.build().string(colorless=not is_terminal)
    figure.clear()
    if not has_blocks:
        drawn = drawn.translate(_PLAIN)
    # of a name of a metric
    print(drawn.encode(encoding, "replace").decode(encoding))


def _can_show(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return round numbers from `low` to `high`, with their labels."""
    # plotext's own are not round, and matplotlib's locator is much to install
    size = high - low
    if size <= 0:
        return [low], [f"{low:.6g}"]
    # the power of ten below the ideal step; one of its multiples is the first that fits
    unit = 10.0 ** math.floor(math.log10(size / _MAX_TICKS))
    step = next(unit * n for n in (1, 2, 5, 10) if size / (unit * n) <= _MAX_TICKS)
    count = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [n * step for n in count], [f"{n * step:.6g}" for n in count]


def _list_names(names: Sequence[str]) -> str:
    """Return a sentence with the first metric names."""
    if not names:
        return "Nothing was logged."
    return f"There are: {first_few([*map(printable, names)], _MAX_LISTED)}."
