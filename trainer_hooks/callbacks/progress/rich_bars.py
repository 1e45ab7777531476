"""RichBars: what rich draws, with the metrics below a bar where its line has no room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import Progress, ProgressColumn, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType
    from rich.style import StyleType
    from rich.table import Table

__all__ = ["RichBars"]

_BOUNDLESS = 10_000
"""Columns in which any line has room."""

_LEAST = 3
"""Parts of a line that stay however narrow it is: what it is, the bar, and the count."""


class RichBars(Progress):
    """Draw each task in a line: its columns, and then its metrics if they fit.

    Args:
        columns: the columns.
        style: that of the metrics.
        console: what to draw on.
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
            auto_refresh=False,  # a thread would be in the way of workers that are forked
            redirect_stdout=False,  # what others write is led above the bars by the canvas
            redirect_stderr=False,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what is drawn: a table, and below each bar what it has no room for.

        On a very narrow terminal the last columns are left out.
        """
        self.columns = self._whole
        whole = self.make_tasks_table(self.tasks)
        if not self.tasks or self._fits(whole):  # without tasks, rich is still being made
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
