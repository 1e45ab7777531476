"""RichProgressBar: progress drawn with rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.progress import display_hooks
from trainer_hooks.callbacks.progress.bar_drawing import Phase, whole_number
from trainer_hooks.callbacks.progress.display import Display
from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
from trainer_hooks.callbacks.progress.rich_canvas import RichCanvas
from trainer_hooks.callbacks.progress.rich_theme import RichProgressBarTheme
from trainer_hooks.errors import CallbackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.progress import Progress, ProgressColumn, Task

    from trainer_hooks.context import Trainer

__all__ = ["RichProgressBar", "RichProgressBarTheme"]


class RichProgressBar(ProgressBar):
    """Show progress with rich: a bar for training, below it one for validation.

    To change what a line consists of, override `configure_columns`; to change the metrics at its
    end, override `get_metrics`. With it, the default summary is a `RichModelSummary`.

    A bar is drawn at most ten times a second, and less often where drawing takes more than 5% of
    the time. Without a terminal, plain lines are written: at the end of each epoch, and every 10 s.
    What is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor what a resumed run skips before its first batch. Where the run ends inside
    an epoch, so does its bar. Where more than the epoch is to come, `run<1:02:03` is the time left
    of all of it, validations included, at the pace so far.

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

    on_sanity_check_start = display_hooks.on_sanity_check_start
    on_sanity_check_end = display_hooks.on_sanity_check_end
    on_train_start = display_hooks.on_train_start
    on_train_epoch_start = display_hooks.on_train_epoch_start
    on_train_batch_end = display_hooks.on_train_batch_end
    on_train_batches_end = display_hooks.on_train_batches_end
    on_train_epoch_end = display_hooks.on_train_epoch_end
    on_train_end = display_hooks.on_train_end
    on_validation_start = display_hooks.on_validation_start
    on_validation_end = display_hooks.on_validation_end
    on_test_start = display_hooks.on_test_start
    on_test_end = display_hooks.on_test_end
    on_predict_start = display_hooks.on_predict_start
    on_predict_end = display_hooks.on_predict_end
    on_exception = display_hooks.on_exception
    teardown = display_hooks.teardown

    def __init__(
        self,
        refresh_rate: int = 1,
        leave: bool = False,
        theme: RichProgressBarTheme | None = None,
        console_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        rate = whole_number("refresh_rate", refresh_rate, type(self))
        if not isinstance(theme, RichProgressBarTheme | None):
            raise CallbackError(
                f"theme {theme!r} of {type(self).__qualname__}: must be a RichProgressBarTheme. "
                "Write theme=RichProgressBarTheme(...)."
            )
        self.theme = theme or RichProgressBarTheme()
        self.canvas = RichCanvas(self, leave, console_kwargs or {})
        self.display: Display = Display(self, self.canvas, rate, leave)

    @property
    def refresh_rate(self) -> int:
        """Return how many batches pass between two drawings, at least."""
        return self.display.refresh_rate

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
        return self.canvas.progress

    def refresh(self) -> None:
        """Draw what has changed now."""
        if self.canvas.progress is not None:
            self.canvas.progress.refresh()

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

    def _task(self, phase: Phase) -> Task:
        task = self.canvas.task(phase)
        if task is None:
            raise UsageError(
                f"{phase} bar of {type(self).__qualname__}: is drawn only on a terminal, while "
                "there is something to count. Ask for it then."
            )
        return task
