"""RichProgressBar: progress drawn with rich."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.bar_drawing import Phase, clock, format_metrics
from trainer_hooks.callbacks.drawn_progress_bar import DrawnProgressBar
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["RichProgressBar", "RichProgressBarTheme"]


@dataclass(frozen=True, slots=True)
class RichProgressBarTheme:
    """How the parts of a RichProgressBar look; each is a rich style such as `"bold cyan"`.

    Attributes:
        description: what is counted.
        progress_bar: the part of the bar that is done.
        progress_bar_finished: the bar when all is done.
        progress_bar_pulse: the bar when the total is unknown.
        batch_progress: how many batches of how many.
        time: time spent and left.
        processing_speed: batches a second.
        metrics: the metrics.
    """

    description: str = "bold"
    progress_bar: str = "cyan"
    progress_bar_finished: str = "green"
    progress_bar_pulse: str = "cyan"
    batch_progress: str = ""
    time: str = "dim"
    processing_speed: str = "dim"
    metrics: str = ""


@dataclass(slots=True)
class _Shown:
    task: TaskID
    total: int | None
    first: int
    started: float
    metrics: str = ""


class RichProgressBar(DrawnProgressBar):
    """Show progress with rich: a bar for training, below it one for validation.

    Args:
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
        leave: whether the bar of each epoch stays on the screen.
        theme: how it looks. Default: `RichProgressBarTheme()`.
        console_kwargs: arguments of the `rich.console.Console` that it is drawn on.

    Raises:
        CallbackError: an argument breaks its rule; for `console_kwargs` when a run starts.

    Example::

        theme = RichProgressBarTheme(progress_bar="magenta")
        trainer = Trainer(callbacks=[RichProgressBar(theme=theme)])
    """

    def __init__(
        self,
        refresh_rate: int = 1,
        leave: bool = False,
        theme: RichProgressBarTheme | None = None,
        console_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(refresh_rate, leave)
        if not isinstance(theme, RichProgressBarTheme | None):
            raise CallbackError(
                f"theme {theme!r} of {type(self).__qualname__}: must be a RichProgressBarTheme. "
                "Write theme=RichProgressBarTheme(...)."
            )
        self.theme = theme or RichProgressBarTheme()
        self._console_kwargs = dict(console_kwargs or {})
        self._console: Console | None = None
        self._progress: Progress | None = None
        self._shown: dict[Phase, _Shown] = {}

    def is_terminal(self) -> bool:
        """Return whether the console can be drawn over: a terminal or a notebook."""
        console = self._console = self._new_console()
        forced: bool | None = self._console_kwargs.get("force_terminal")
        if forced is not None:
            return forced
        # not console.is_terminal: FORCE_COLOR makes that true for a log file too
        return console.is_jupyter or console.file.isatty()

    def open_bar(self, phase: Phase, description: str, total: int | None, count: int) -> None:
        """Show a bar, or start the one that is there anew."""
        if phase is Phase.TRAIN and self._leave and phase in self._shown:
            self.close_bar(phase)
        progress = self._started()
        shown = self._shown.get(phase)
        if shown is not None and (shown.total is None) == (total is None):
            task = shown.task
            progress.update(
                task,
                description=description,
                total=total,
                completed=count,
                counts=_counts(count, total),
                time="",
                speed="",
            )
        else:
            if shown is not None:
                progress.remove_task(shown.task)
            task = progress.add_task(
                description,
                total=total,
                completed=count,
                counts=_counts(count, total),
                time="",
                speed="",
                metrics="",
            )
        metrics = "" if shown is None else shown.metrics
        self._shown[phase] = _Shown(task, total, count, monotonic(), metrics)

    def draw_bar(self, phase: Phase, count: int, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar."""
        progress, shown = self._started(), self._shown[phase]
        seconds = monotonic() - shown.started
        speed = (count - shown.first) / seconds if seconds > 0 else 0.0
        spent = clock(seconds)
        if shown.total is not None and speed > 0:
            spent = f"{spent}<{clock((shown.total - count) / speed)}"
        if metrics is not None:
            shown.metrics = format_metrics(metrics)
        progress.update(
            shown.task,
            completed=count,
            refresh=True,
            counts=_counts(count, shown.total),
            time=spent,
            speed=f"{speed:.2f}it/s",
            metrics=shown.metrics,
        )

    def close_bar(self, phase: Phase) -> None:
        """Close a bar; the last one stays on the screen, unless it is that of the sanity check."""
        progress, shown = self._started(), self._shown.pop(phase)
        if self._shown or phase is Phase.SANITY:
            progress.remove_task(shown.task)
            progress.refresh()
        if not self._shown:
            self._progress = None
            progress.stop()

    def write(self, text: str) -> None:
        """Write text above the bars."""
        console = self._started().console
        # as the builtin would: rich must read nothing into it
        console.print(text, end="", markup=False, emoji=False, highlight=False, soft_wrap=True)

    def _new_console(self) -> Console:
        from rich.console import Console

        try:
            return Console(**self._console_kwargs)
        except TypeError as error:
            raise CallbackError(
                f"console_kwargs {self._console_kwargs!r} of {type(self).__qualname__}: must be "
                f"arguments of rich.console.Console ({error}). Correct or leave out that one."
            ) from error

    def _started(self) -> Progress:
        if self._progress is None:
            from rich.progress import BarColumn, Progress, TextColumn
            from rich.table import Column

            theme = self.theme
            self._progress = Progress(
                TextColumn("{task.description}", style=theme.description, markup=False),
                BarColumn(
                    bar_width=20,
                    complete_style=theme.progress_bar,
                    finished_style=theme.progress_bar_finished,
                    pulse_style=theme.progress_bar_pulse,
                ),
                TextColumn("{task.fields[counts]}", style=theme.batch_progress, markup=False),
                TextColumn("{task.fields[time]}", style=theme.time, markup=False),
                TextColumn("{task.fields[speed]}", style=theme.processing_speed, markup=False),
                TextColumn(
                    "{task.fields[metrics]}",
                    style=theme.metrics,
                    markup=False,
                    # the other parts keep to one line; metrics are shown whole, below if need be
                    table_column=Column(ratio=1, overflow="fold"),
                ),
                console=self._console,
                auto_refresh=False,  # a thread would be in the way of workers that are forked
            )
            self._progress.start()
        return self._progress


def _counts(count: int, total: int | None) -> str:
    return f"{count}/{'?' if total is None else total}"
