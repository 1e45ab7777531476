"""RichProgressBar: a progress bar drawn with rich, and its theme."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import answers_keywords, answers_keywords_of_init
from trainer_hooks._output import is_terminal
from trainer_hooks.callbacks.progress.display import (
    DisplayedProgressBar,
    Phase,
    check_whole_number,
    format_metrics,
    rate_of,
    run_of,
    times_of,
)
from trainer_hooks.errors import CallbackError, UsageError
from trainer_hooks.runtime.rng import isolated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task, TaskID
    from rich.style import Style

    from trainer_hooks.callbacks.progress.display import Pace
    from trainer_hooks.context.context import Trainer

_TEXTS = ("metrics_text_delimiter", "metrics_format")


class RichProgressBar(DisplayedProgressBar):
    """Show progress with rich: a bar for training, below it one for validation.

    To change the columns of a line, override `configure_columns`; to change the metrics at its
    end, override `get_metrics`. With it, the default summary is a `RichModelSummary`.

    A bar is drawn at most ten times a second, and less often where drawing takes more than 5% of
    the time. Without a terminal, plain lines are written: at the end of each epoch, and every 10 s.
    Text that is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor the batches that a resumed run skips first. Where the run ends inside
    an epoch, so does its bar. Where the run has more epochs, `run<1:02:03` is the time left of the
    whole run, validations included, at the pace so far.

    Args:
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
        leave: whether the bar of each epoch stays on the screen.
        theme: the looks of its parts. Default: `RichProgressBarTheme()`.
        console_kwargs: arguments of the `rich.console.Console` to draw on.

    Attributes:
        theme: the looks of its parts.

    Raises:
        CallbackError: an argument breaks its rule; for `console_kwargs` and the styles of the theme
            when a run starts.

    Example::

        theme = RichProgressBarTheme(progress_bar="magenta", metrics_format=".4f")
        trainer = Trainer(max_epochs=2, callbacks=[RichProgressBar(theme=theme)])
        trainer.fit(module, train_loader, val_loader)
    """

    @answers_keywords
    def __init__(
        self,
        refresh_rate: int = 1,
        leave: bool = False,
        theme: RichProgressBarTheme | None = None,
        console_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        check_whole_number("refresh_rate", refresh_rate, type(self))
        if not isinstance(theme, RichProgressBarTheme | None):
            raise CallbackError(
                f"theme {theme!r} of {type(self).__qualname__}: must be a RichProgressBarTheme. "
                "Write theme=RichProgressBarTheme(...)."
            )
        self.theme = theme or RichProgressBarTheme()
        self.canvas = RichCanvas(self, leave, console_kwargs or {})
        super().__init__(self.canvas, refresh_rate, leave)

    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn | str]:
        """Return the columns of a line; the metrics follow them.

        Your own column finds `counts`, `times` and `speed` in the fields of its task: texts that
        leave out validations and the batches that a resumed run skips.
        """
        from rich.progress import BarColumn, TextColumn

        theme = self.theme
        return [
            TextColumn("{task.description}", style=theme.description, markup=False),
            BarColumn(
                bar_width=20,
                complete_style=theme.progress_bar,
                finished_style=theme.progress_bar_finished,
                pulse_style=theme.progress_bar_pulse,
            ),
            TextColumn("{task.fields[counts]}", style=theme.batch_progress, markup=False),
            TextColumn("{task.fields[times]}", style=theme.time, markup=False),
            TextColumn("{task.fields[speed]}", style=theme.processing_speed, markup=False),
        ]

    # --- The objects of rich, under Lightning's names

    @property
    def progress(self) -> Progress | None:
        """The progress display of rich, None while no bar is drawn."""
        return self.canvas.progress

    def refresh(self) -> None:
        """Draw all changes now."""
        if self.canvas.progress is not None:
            self.canvas.progress.refresh()

    @property
    def train_progress_bar(self) -> Task:
        """The task of the running epoch.

        Raises:
            UsageError: no such bar is drawn.
        """
        return self._task(Phase.TRAIN)

    @property
    def val_sanity_check_bar(self) -> Task:
        """The task of the running sanity check.

        Raises:
            UsageError: no such bar is drawn.
        """
        return self._task(Phase.SANITY)

    @property
    def val_progress_bar(self) -> Task:
        """The task of the running validation.

        Raises:
            UsageError: no such bar is drawn.
        """
        return self._task(Phase.VALIDATION)

    @property
    def test_progress_bar(self) -> Task:
        """The task of the running test.

        Raises:
            UsageError: no such bar is drawn.
        """
        return self._task(Phase.TEST)

    def _task(self, phase: Phase) -> Task:
        task = self.canvas.task(phase)
        if task is None:
            raise UsageError(
                f"{phase} bar of {type(self).__qualname__}: is drawn only on a terminal, while "
                "there is something to count. Ask for it then."
            )
        return task


@answers_keywords_of_init
@dataclass(frozen=True, slots=True)
class RichProgressBarTheme:
    """The looks of a RichProgressBar's parts; each is a rich style such as `"bold cyan"`.

    Attributes:
        description: the text before the bar.
        progress_bar: the completed part of the bar.
        progress_bar_finished: the completed bar.
        progress_bar_pulse: the bar when the total is unknown.
        batch_progress: the numbers of batches done and in total.
        time: the elapsed time and the time left.
        processing_speed: the batches per second.
        metrics: the metrics.
        metrics_text_delimiter: the text between two metrics.
        metrics_format: the format of floats, as for `format`.

    Raises:
        CallbackError: the last two are no strings, or the format does not fit numbers.
    """

    description: str | Style = ""
    progress_bar: str | Style = "#6206E0"
    progress_bar_finished: str | Style = "#6206E0"
    progress_bar_pulse: str | Style = "#6206E0"
    batch_progress: str | Style = ""
    time: str | Style = "dim"
    processing_speed: str | Style = "dim underline"
    metrics: str | Style = "italic"
    metrics_text_delimiter: str = " "
    metrics_format: str = ".3f"

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise CallbackError(
                    f"{name} {getattr(self, name)!r} of RichProgressBarTheme: must be a text. "
                    "Leave it out to have the usual one."
                )
        try:
            format(0.5, self.metrics_format)
        except ValueError as error:
            raise CallbackError(
                f"metrics_format {self.metrics_format!r} of RichProgressBarTheme: must be a format "
                f"for numbers ({error}). Write one such as '.3f'."
            ) from error

    def check_styles(self) -> None:
        """Check that rich knows the styles.

        Raises:
            CallbackError: it does not know one.
        """
        from rich.errors import StyleSyntaxError
        from rich.style import Style

        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _TEXTS or isinstance(value, Style):
                continue
            try:
                Style.parse(value)
            except (StyleSyntaxError, AttributeError, TypeError) as error:
                raise CallbackError(
                    f"{field.name} {value!r} of RichProgressBarTheme: must be a style of rich "
                    f"({error}). Write one such as 'bold cyan'."
                ) from error


class RichCanvas:
    """A canvas that draws bars with rich.

    Args:
        bar: the callback, which has the theme and the columns.
        leave: whether the bar of each epoch stays on the screen.
        console_kwargs: arguments of the `rich.console.Console` to draw on.

    Attributes:
        progress: rich's progress display, None while no bar is drawn.
    """

    def __init__(
        self, bar: RichProgressBar, leave: bool, console_kwargs: Mapping[str, Any]
    ) -> None:
        self._owner, self._leave = bar, leave
        self._console_kwargs = dict(console_kwargs)
        self._console: Console | None = None
        self.progress: Progress | None = None
        self._drawn_tasks: dict[Phase, _DrawnTask] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave rich's objects out of copies and pickles."""
        return {**vars(self), "_console": None, "progress": None, "_drawn_tasks": {}}

    def task(self, phase: Phase) -> Task | None:
        """Return rich's task of a bar; None if the bar is not drawn."""
        drawn = self._drawn_tasks.get(phase)
        if drawn is None or self.progress is None:
            return None
        return next(task for task in self.progress.tasks if task.id == drawn.task)

    def is_terminal(self) -> bool:
        """Return whether the console can be drawn over: a terminal or a notebook."""
        with isolated():  # importing rich draws from Python's global random generator
            import rich.progress  # noqa: F401
        self._owner.theme.check_styles()
        console = self._console = self._new_console()
        forced: bool | None = self._console_kwargs.get("force_terminal")
        if forced is not None:
            return forced
        # not console.is_terminal: FORCE_COLOR makes that true for a log file too
        return console.is_jupyter or is_terminal(console.file)

    def stream(self) -> TextIO | None:
        """Return the console's stream, or None in a notebook."""
        console = self._console
        return None if console is None or console.is_jupyter else console.file  # type: ignore[return-value]

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or restart the open bar of this phase."""
        # with `leave` each epoch gets a bar of its own
        if phase is Phase.TRAIN and self._leave and phase in self._drawn_tasks:
            self.close_bar(phase)
        progress = self._started_progress()
        drawn = self._drawn_tasks.get(phase)
        changed: dict[str, Any] = {
            "description": description,
            "total": pace.total,
            "completed": pace.count,
            "counts": _counts(pace),
            "times": "",
            "speed": "",
        }
        # rich ignores an update to `total=None`: a bar that loses its total needs a new task
        if drawn is not None and drawn.has_total is (pace.total is not None):
            progress.update(drawn.task, **changed)
            return
        metrics = ""
        if drawn is not None:
            metrics = drawn.metrics
            progress.remove_task(drawn.task)
        task = progress.add_task(**changed, metrics=metrics)
        self._drawn_tasks[phase] = _DrawnTask(task, pace.total is not None, metrics)

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar; without `metrics` the metrics of the last drawing stay."""
        drawn, theme = self._drawn_tasks[phase], self._owner.theme
        if metrics is not None:
            drawn.metrics = format_metrics(
                metrics, theme.metrics_format, theme.metrics_text_delimiter
            )
        self._started_progress().update(
            drawn.task,
            completed=pace.count,
            total=pace.total,
            refresh=True,
            counts=_counts(pace),
            times=" ".join(filter(None, (times_of(pace), run_of(pace)))),
            speed=rate_of(pace),
            metrics=drawn.metrics,
        )

    def close_bar(self, phase: Phase) -> None:
        """Close a bar; the last one stays on the screen, unless it is that of the sanity check."""
        progress, drawn = self._started_progress(), self._drawn_tasks.pop(phase)
        if self._drawn_tasks or phase is Phase.SANITY:
            progress.remove_task(drawn.task)
            progress.refresh()
        if not self._drawn_tasks:
            self.progress = None
            progress.stop()

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""
        # as print would: rich must not interpret markup, emoji names or numbers
        self._started_progress().console.print(
            text, end="", markup=False, emoji=False, highlight=False, soft_wrap=True
        )

    def _new_console(self) -> Console:
        from rich.console import Console

        # the present stream: the redirection replaces it later, and must not be drawn on
        default = sys.stderr if self._console_kwargs.get("stderr") else sys.stdout
        try:
            return Console(**{"file": default, **self._console_kwargs})
        except TypeError as error:
            raise CallbackError(
                f"console_kwargs {self._console_kwargs!r} of {type(self._owner).__qualname__}: "
                f"must be arguments of rich.console.Console ({error}). Correct or leave out that "
                "one."
            ) from error

    def _started_progress(self) -> Progress:
        if self.progress is None:
            from trainer_hooks.callbacks.progress.rich_bars import RichBars

            self.progress = RichBars(
                self._owner.configure_columns(self._owner.trainer),
                self._owner.theme.metrics,
                self._console,
            )
            self.progress.start()
        return self.progress


@dataclass(slots=True)
class _DrawnTask:
    """A task of rich with its metrics."""

    task: TaskID
    has_total: bool
    metrics: str = ""


def _counts(pace: Pace) -> str:
    return f"{pace.count}/{'?' if pace.total is None else pace.total}"
