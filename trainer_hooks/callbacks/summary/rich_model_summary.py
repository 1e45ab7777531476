"""RichModelSummary: what a model is made of, drawn with rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.summary.model_summary import ModelSummary, check_summarize_kwargs
from trainer_hooks.callbacks.summary.table import RIGHT, text_table, totals
from trainer_hooks.runtime import isolated

if TYPE_CHECKING:
    from trainer_hooks.callbacks.summary.table import SummaryData

__all__ = ["RichModelSummary"]


class RichModelSummary(ModelSummary):
    """Show what the model is made of with rich, when fit starts.

    It is what `ModelSummary` is, drawn as a table in colour on a terminal and in a notebook, and as
    the same plain text everywhere else. With a `RichProgressBar` it is the default summary.

    Args:
        max_depth: how many levels of submodules get a row: 1 for those of the model itself, -1 for
            all; 0 for no summary.
        summarize_kwargs: passed on to `summarize`; the one of this class takes `header_style`, the
            style of rich that the headers have (default: `"bold magenta"`).

    Raises:
        CallbackError: `max_depth` is no whole number from -1 on; when fit starts, an argument that
            `summarize` does not take.

    Example::

        summary = RichModelSummary(max_depth=2, header_style="bold cyan")
        trainer = Trainer(max_epochs=1, callbacks=[summary])
        trainer.fit(module, train_loader)
    """

    @staticmethod
    def summarize(
        summary_data: SummaryData,
        total_parameters: int,
        trainable_parameters: int,
        model_size: float,
        total_training_modes: dict[str, int],
        total_flops: int,
        **summarize_kwargs: Any,
    ) -> None:
        """Show the summary; the arguments are those of `ModelSummary.summarize`."""
        with isolated():  # rich draws a global random number when it is imported
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text

        check_summarize_kwargs(summarize_kwargs, ("header_style",))
        below = totals(
            total_parameters,
            trainable_parameters,
            model_size,
            total_training_modes,
            total_flops,
            summary_data,
        )
        console = Console()
        if not (console.is_jupyter or console.file.isatty()):
            print(text_table(summary_data, below))
            return
        table = Table(header_style=summarize_kwargs.get("header_style", "bold magenta"))
        for name, _ in summary_data:
            table.add_column(
                name,
                justify="right" if name in RIGHT else "left",
                overflow="fold",
                no_wrap=name in RIGHT,
                style="dim" if not name.strip() else None,
            )
        for row in zip(*(cells for _, cells in summary_data), strict=True):
            table.add_row(*map(Text, row))  # as it is: rich must read nothing into brackets
        if table.row_count:
            console.print(table)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(justify="right")
        for figure, what in below:
            grid.add_row(figure, Text(what, style="bold"))
        console.print(grid)
