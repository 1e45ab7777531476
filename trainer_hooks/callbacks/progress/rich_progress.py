"""RichProgressBar: progress drawn with rich."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.progress.bar_drawing import Phase, format_metrics, rate_of, times_of
from trainer_hooks.callbacks.progress.drawn_progress_bar import DrawnProgressBar
from trainer_hooks.callbacks.progress.rich_theme import RichProgressBarTheme
from trainer_hooks.callbacks.progress.streams import is_terminal
from trainer_hooks.errors import CallbackError, UsageError
from trainer_hooks.runtime import isolated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task, TaskID

    from trainer_hooks.callbacks.progress.pace import Pace
    from trainer_hooks.context import Trainer

__all__ = ["RichProgressBar", "RichProgressBarTheme"]


@dataclass(slots=True)
class _Shown:
    task: TaskID
    has_total: bool
    metrics: str = ""


class RichProgressBar(DrawnProgressBar):
    """Show progress with rich: a bar for training, below it one for validation.

    To change what a line consists of, override `configure_columns`; to change the metrics at its
    end, override `get_metrics`. With it, the default summary is a `RichModelSummary`.

    A bar is drawn at most ten times a second, and less often where drawing takes more than 5% of
    the time. Without a terminal, plain lines are written: at the end of each epoch, and every 10 s.
    What is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor what a resumed run skips before its first batch.

    Args:
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
        leave: whether the bar of each epoch stays on the screen.
        theme: how it looks. Default: `RichProgressBarTheme()`.
        console_kwargs: arguments of the `rich.console.Console` that it is drawn on.

    Attributes:
        theme: how it looks.

    Raises:
        CallbackError: an argument breaks its rule; for `console_kwargs` and the styles of the theme
            when a run starts.

    Example::

        theme = RichProgressBarTheme(progress_bar="magenta", metrics_format=".4f")
        trainer = Trainer(max_epochs=2, callbacks=[RichProgressBar(theme=theme)])
        trainer.fit(module, train_loader, val_loader)
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

    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn | str]:
        """Return the columns of a line; the metrics come after them.

        A column of your own finds `counts`, `times` and `speed` in the fields of its task: texts in
        which validations and what a resume skipped are accounted for.
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

    # --- What rich has

    @property
    def progress(self) -> Progress | None:
        """What rich draws, None while nothing is drawn."""
        return self._progress

    def refresh(self) -> None:
        """Draw what has changed now."""
        if self._progress is not None:
            self._progress.refresh()

    @property
    def train_progress_bar(self) -> Task:
        """The task of the epoch under way.

        Raises:
            UsageError: nothing of that kind is drawn.
        """
        return self._task(Phase.TRAIN)

    @property
    def val_sanity_check_bar(self) -> Task:
        """The task of the sanity check under way.

        Raises:
            UsageError: nothing of that kind is drawn.
        """
        return self._task(Phase.SANITY)

    @property
    def val_progress_bar(self) -> Task:
        """The task of the validation under way.

        Raises:
            UsageError: nothing of that kind is drawn.
        """
        return self._task(Phase.VALIDATION)

    @property
    def test_progress_bar(self) -> Task:
        """The task of the test under way.

        Raises:
            UsageError: nothing of that kind is drawn.
        """
        return self._task(Phase.TEST)

    # --- What is drawn

    def is_terminal(self) -> bool:
        """Return whether the console can be drawn over: a terminal or a notebook."""
        with isolated():  # rich draws a global random number when it is imported
            import rich.progress  # noqa: F401
        self.theme.check_styles()
        console = self._console = self._new_console()
        forced: bool | None = self._console_kwargs.get("force_terminal")
        if forced is not None:
            return forced
        # not console.is_terminal: FORCE_COLOR makes that true for a log file too
        return console.is_jupyter or is_terminal(console.file)

    def stream(self) -> TextIO | None:
        """Return what the console writes to, unless that is a notebook's own."""
        console = self._console
        return None if console is None or console.is_jupyter else console.file  # type: ignore[return-value]

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or start the one that is there anew."""
        if phase is Phase.TRAIN and self._leave and phase in self._shown:
            self.close_bar(phase)
        progress = self._started()
        shown = self._shown.get(phase)
        changed: dict[str, Any] = {
            "description": description,
            "total": pace.total,
            "completed": pace.count,
            "counts": _counts(pace),
            "times": "",
            "speed": "",
        }
        if shown is not None and shown.has_total is (pace.total is not None):
            progress.update(shown.task, **changed)
            return
        metrics = ""
        if shown is not None:
            metrics = shown.metrics
            progress.remove_task(shown.task)
        task = progress.add_task(**changed, metrics=metrics)
        self._shown[phase] = _Shown(task, pace.total is not None, metrics)

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar."""
        shown, theme = self._shown[phase], self.theme
        if metrics is not None:
            shown.metrics = format_metrics(
                metrics, theme.metrics_format, theme.metrics_text_delimiter
            )
        self._started().update(
            shown.task,
            completed=pace.count,
            refresh=True,
            counts=_counts(pace),
            times=times_of(pace),
            speed=rate_of(pace),
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

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""
        # as the builtin would: rich must read nothing into it
        self._started().console.print(
            text, end="", markup=False, emoji=False, highlight=False, soft_wrap=True
        )

    def _new_console(self) -> Console:
        from rich.console import Console

        # the stream of now: what stands between it and what others print is not to be drawn on
        default = sys.stderr if self._console_kwargs.get("stderr") else sys.stdout
        try:
            return Console(**{"file": default, **self._console_kwargs})
        except TypeError as error:
            raise CallbackError(
                f"console_kwargs {self._console_kwargs!r} of {type(self).__qualname__}: must be "
                f"arguments of rich.console.Console ({error}). Correct or leave out that one."
            ) from error

    def _started(self) -> Progress:
        if self._progress is None:
            from rich.progress import Progress, TextColumn
            from rich.table import Column

            metrics = TextColumn(
                "{task.fields[metrics]}",
                style=self.theme.metrics,
                markup=False,
                # the other parts keep to one line; metrics are shown whole, below if need be
                table_column=Column(ratio=1, overflow="fold"),
            )
            self._progress = Progress(
                *self.configure_columns(self.trainer),
                metrics,
                console=self._console,
                auto_refresh=False,  # a thread would be in the way of workers that are forked
                redirect_stdout=False,  # what others write is led above the bars by this class
                redirect_stderr=False,
            )
            self._progress.start()
        return self._progress

    def _task(self, phase: Phase) -> Task:
        shown = self._shown.get(phase)
        if shown is None or self._progress is None:
            raise UsageError(
                f"{phase} bar of {type(self).__qualname__}: is drawn only on a terminal, while "
                "there is something to count. Ask for it then."
            )
        return next(task for task in self._progress.tasks if task.id == shown.task)


def _counts(pace: Pace) -> str:
    return f"{pace.count}/{'?' if pace.total is None else pace.total}"
