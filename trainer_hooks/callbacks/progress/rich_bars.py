"""RichBars: rich's progress display, with metrics below a bar whose line has no room for them.

It imports rich at its top, so `rich_progress` imports it only when a bar is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import Progress, ProgressColumn, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType
    from rich.style import StyleType
    from rich.table import Table

_BOUNDLESS = 10_000
"""A console width in characters in which any line has room."""

_LEAST = 3
"""The number of columns that stay on the narrowest terminal: description, bar and count."""


class RichBars(Progress):
    """A progress display that draws each task in a line: its columns, and its metrics if they fit.

    Args:
        columns: the columns.
        style: the style of the metrics.
        console: the console to draw on.
    """

    def __init__(
        self, columns: Sequence[ProgressColumn | str], style: StyleType, console: Console | None
    ) -> None:
        metrics = TextColumn("{task.fields[metrics]}", style=style, markup=False)
        self._style = style
        self._own: tuple[ProgressColumn | str, ...] = tuple(columns)
        self._whole = (*self._own, metrics)
        super().__init__(
            *self._whole,
            console=console,
            auto_refresh=False,  # its thread could hold a lock when workers are forked
            redirect_stdout=False,  # `StreamRedirection` does that, also for logging
            redirect_stderr=False,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the renderables: a table, or a line for each bar and its metrics below.

        On a very narrow terminal the last columns are left out.
        """
        self.columns = self._whole
        whole = self.make_tasks_table(self.tasks)
        if not self.tasks or self._fits(whole):  # without tasks: called by rich's __init__
            yield whole
            return
        self.columns = self._own
        while len(self.columns) > _LEAST and not self._fits(self.make_tasks_table(self.tasks)):
            self.columns = self.columns[:-1]
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if task.fields["metrics"]:
                yield Text(task.fields["metrics"], style=self._style, overflow="fold")

    def _fits(self, table: Table) -> bool:
        boundless = self.console.options.update(width=_BOUNDLESS)
        return self.console.measure(table, options=boundless).maximum <= self.console.width
