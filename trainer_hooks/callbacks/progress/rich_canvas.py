"""RichCanvas: bars of rich."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.callbacks.progress.bar_drawing import (
    Phase,
    format_metrics,
    rate_of,
    run_of,
    times_of,
)
from trainer_hooks.callbacks.progress.streams import is_terminal
from trainer_hooks.errors import CallbackError
from trainer_hooks.runtime import isolated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task, TaskID

    from trainer_hooks.callbacks.progress.pace import Pace
    from trainer_hooks.callbacks.progress.rich_theme import RichProgressBarTheme
    from trainer_hooks.context import Trainer

__all__ = ["RichCanvas", "RichStyle"]


class RichStyle(Protocol):
    """What says how the bars look."""

    theme: RichProgressBarTheme

    @property
    def trainer(self) -> Trainer:
        """The trainer whose progress is shown."""

    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn | str]:
        """Return the columns of a line; the metrics come after them."""


@dataclass(slots=True)
class _Shown:
    task: TaskID
    has_total: bool
    metrics: str = ""


class RichCanvas:
    """Draw bars with rich.

    Args:
        style: how they look.
        leave: whether the bar of each epoch stays on the screen.
        console_kwargs: arguments of the `rich.console.Console` that is drawn on.

    Attributes:
        progress: what rich draws, None while nothing is drawn.
    """

    def __init__(self, style: RichStyle, leave: bool, console_kwargs: Mapping[str, Any]) -> None:
        self._style, self._leave = style, leave
        self._console_kwargs = dict(console_kwargs)
        self._console: Console | None = None
        self.progress: Progress | None = None
        self._shown: dict[Phase, _Shown] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is drawn, and on what, out of copies and pickles."""
        return {**vars(self), "_console": None, "progress": None, "_shown": {}}

    def task(self, phase: Phase) -> Task | None:
        """Return what rich knows of a bar; None if it is not drawn."""
        shown = self._shown.get(phase)
        if shown is None or self.progress is None:
            return None
        return next(task for task in self.progress.tasks if task.id == shown.task)

    def is_terminal(self) -> bool:
        """Return whether the console can be drawn over: a terminal or a notebook."""
        with isolated():  # rich draws a global random number when it is imported
            import rich.progress  # noqa: F401
        self._style.theme.check_styles()
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
        """Draw a bar; without `metrics` those that were drawn last stay."""
        shown, theme = self._shown[phase], self._style.theme
        if metrics is not None:
            shown.metrics = format_metrics(
                metrics, theme.metrics_format, theme.metrics_text_delimiter
            )
        self._started().update(
            shown.task,
            completed=pace.count,
            total=pace.total,
            refresh=True,
            counts=_counts(pace),
            times=" ".join(filter(None, (times_of(pace), run_of(pace)))),
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
            self.progress = None
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
                f"console_kwargs {self._console_kwargs!r} of {type(self._style).__qualname__}: "
                f"must be arguments of rich.console.Console ({error}). Correct or leave out that "
                "one."
            ) from error

    def _started(self) -> Progress:
        if self.progress is None:
            from trainer_hooks.callbacks.progress.rich_bars import RichBars

            self.progress = RichBars(
                self._style.configure_columns(self._style.trainer),
                self._style.theme.metrics,
                self._console,
            )
            self.progress.start()
        return self.progress


def _counts(pace: Pace) -> str:
    return f"{pace.count}/{'?' if pace.total is None else pace.total}"
