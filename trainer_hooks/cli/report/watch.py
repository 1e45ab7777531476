"""`trainer-hooks watch`: the table of runs on the terminal, which follows them as they write."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks._output import is_terminal
from trainer_hooks._text import printable, show_table
from trainer_hooks.cli.report.changed_runs import ChangedRunReader
from trainer_hooks.cli.report.comparison import (
    Objective,
    RunRow,
    compare_rows,
    make_row,
    sweep_objective,
)
from trainer_hooks.cli.report.logged_run import (
    Outcome,
    RunFolderError,
    labels_of,
    number,
    pause_after,
    runs_in,
)
from trainer_hooks.cli.report.page import TONES, duration_words
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from trainer_hooks.cli.report.logged_run import LoggedRun

_FEWEST_POINTS = 8
_BAR_WIDTH = 20
_MINUTE = 60
_CELL_PADDING = 3
_NAME_WIDTH = 16
_NEEDED_LEAST = ("steps", "time", "best")
"""The columns that a narrow terminal lacks, the first one first."""
_LINES_BESIDE_ROWS = 6
_COLORS = {"good": "green", "live": "cyan", "warn": "yellow", "bad": "red"}
"""The color of each tone of an outcome."""


@dataclass(slots=True)
class _ReadRun:
    """A run as it was read, and its row."""

    run: LoggedRun
    row: RunRow


@dataclass(frozen=True, slots=True)
class _WatchedRow:
    """The cells of a run's row, the share of its training that is done, and its state's style."""

    cells: list[str]
    share: float | None
    style: str


class RunWatcher:
    """Reads the runs of a folder again and again; a file that has not changed is not read.

    Args:
        folder: the folder of a run, of several runs, or of a sweep.
        objective: the metric that is shown; None: that of the sweep, or the most likely one.
    """

    def __init__(self, folder: Path, objective: Objective | None) -> None:
        self.folder = folder
        self.objective = objective
        self._read = ChangedRunReader()
        self._last: dict[Path, LoggedRun] = {}

    def rows(self) -> tuple[list[str], list[_WatchedRow]]:
        """Return the names of the columns, and the rows of the runs.

        Those still running stand first, the others by their metric, the best one first.

        Raises:
            RunFolderError: the folder is gone.
            UsageError: no run logged the metric that the user chose.
        """
        read = self._look()
        if not read:
            return [], []
        rows = [each.row for each in read]
        objective = compare_rows(rows, self.objective or sweep_objective(self.folder)).objective
        if len(rows) == 1:
            rows[0].name = labels_of([rows[0].folder])[0]
        read.sort(key=lambda each: _order(each, objective))
        names = [] if objective is None else [objective.metric, "best"]
        header = ["run", "state", "progress", "steps", *names, "time"]
        return header, [_watched_row(each, objective) for each in read]

    def table(self, console: Console) -> RenderableType:
        """Return the table of the runs as they are now, with a bar for each if there is room.

        Args:
            console: the terminal, whose size limits the table.

        Raises:
            RunFolderError: the folder is gone.
            UsageError: no run logged the metric that the user chose.
        """
        from rich import box
        from rich.cells import cell_len
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        header, rows = self.rows()
        if not rows:
            return Text(self.nothing())
        # the head, its lines, the caption, and the line of the cursor
        shown = rows[: max(1, console.height - _LINES_BESIDE_ROWS)]
        lines = [header, *(row.cells for row in shown)]
        widths = [
            max(map(cell_len, map(printable, column))) + _CELL_PADDING
            for column in zip(*lines, strict=True)
        ]
        # rich would take the width that lacks from the names of the runs, down to nothing
        has_bar = sum(widths) + _CELL_PADDING + _BAR_WIDTH <= console.width
        widths[0] = min(widths[0], _NAME_WIDTH + _CELL_PADDING)  # a longer one is folded
        columns = list(range(len(header)))
        for name in _NEEDED_LEAST:
            if sum(widths[column] for column in columns) <= console.width:
                break
            columns = [column for column in columns if header[column] != name]
        table = Table(box=box.SIMPLE_HEAD)
        for column in columns:
            table.add_column(Text(printable(header[column])), no_wrap=column != 0, overflow="fold")
        if has_bar:
            table.add_column("", width=_BAR_WIDTH)
        for row in shown:
            cells: list[RenderableType] = []
            for column in columns:
                style = row.style if header[column] == "state" else ""
                cells.append(Text(printable(row.cells[column]), style))
            if has_bar and row.share is not None:
                cells.append(ProgressBar(total=1.0, completed=row.share, width=_BAR_WIDTH))
            table.add_row(*cells)
        if len(shown) < len(rows):
            table.caption = f"and {len(rows) - len(shown):,} more"
        return table

    def nothing(self) -> str:
        """Return the line for a folder without a run."""
        return printable(f"no run in {str(self.folder)!r} yet")

    def _look(self) -> list[_ReadRun]:
        """Return the runs as their files are now, or were when they could last be read."""
        if not self.folder.is_dir():
            raise RunFolderError(f"{str(self.folder)!r} is not there: give the folder of runs.")
        try:
            folders = runs_in(self.folder)
        except RunFolderError:
            folders = []  # the first run has not begun to write
        for folder in folders:
            try:
                self._last[folder] = self._read(folder, "", _FEWEST_POINTS)
            except (TrainerHooksError, OSError):
                # half a file, or one that was just removed: the next look reads it
                continue
        self._last = {folder: self._last[folder] for folder in folders if folder in self._last}
        return [_ReadRun(run, make_row(run)) for run in self._last.values()]


def watch(folder: Path, objective: Objective | None) -> None:
    """Show the runs of a folder until Ctrl-C; on no terminal, print them once.

    Raises:
        RunFolderError: the folder is not there, or is gone.
        UsageError: no run logged the metric that the user chose.
    """
    watcher = RunWatcher(folder, objective)
    if not is_terminal(sys.stdout):
        header, rows = watcher.rows()
        if rows:
            show_table(header, [row.cells for row in rows])
        else:
            print(watcher.nothing())
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                began = time.monotonic()
                live.update(watcher.table(console), refresh=True)
                spent = time.monotonic() - began
                time.sleep(pause_after(spent))
    except KeyboardInterrupt:
        return  # the way to end it


def _order(read: _ReadRun, objective: Objective | None) -> tuple[bool, float]:
    """Return the key that sorts running runs first, in their order, then the others by metric."""
    if _outcome(read.run) in (Outcome.RUNNING, Outcome.UNKNOWN):
        return False, 0.0  # in one place, whatever their metrics do
    return True, 0.0 if objective is None else objective.key(read.row.last(objective))


def _outcome(run: LoggedRun) -> Outcome | None:
    return None if run.last_fit is None else run.last_fit.outcome


def _watched_row(read: _ReadRun, objective: Objective | None) -> _WatchedRow:
    row, run = read.row, read.run
    outcome = _outcome(run)
    share, progress = _progress(run)
    values = []
    if objective is not None:
        values = [
            "" if math.isnan(value) else f"{value:.6g}"
            for value in (row.last(objective), row.best(objective))
        ]
    return _WatchedRow(
        [
            row.name,
            "" if outcome is None else outcome.value,
            progress,
            f"{row.steps:,}",
            *values,
            f"{run.seconds:.0f} s" if run.seconds < _MINUTE else duration_words(run.seconds),
        ],
        share,
        "" if outcome is None else _COLORS[TONES[outcome]],
    )


def _progress(run: LoggedRun) -> tuple[float | None, str]:
    """Return the share of the epochs or steps that are done, None if unknown, and a text."""
    fit = run.last_fit
    if fit is None:
        return None, ""
    for counter, maximum, noun in (
        ("epoch", "max_epochs", "epoch"), ("global_step", "max_steps", "step"),
    ):  # fmt: skip
        total, done = number(fit.start, maximum), fit.last_count(counter)
        if total > 0:
            return min(1.0, done / total), f"{noun} {done:,}/{total:,.0f}"
    return None, f"epoch {fit.last_count('epoch'):,}"
