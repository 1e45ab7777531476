"""ModelSummary and RichModelSummary: a table of the model's layers, printed when fit starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._output import is_terminal, losing_output
from trainer_hooks._text import printable
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.model_table import RIGHT, check_depth, summarize, text_table, totals
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime.rng import isolated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.callbacks.model_table import SummaryData
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


class ModelSummary(Callback):
    """Print a table of the model's layers when fit starts.

    With `module.example_input_array` set, the table has the sizes of each layer's inputs and
    outputs, and its floating-point operations: those that torch counts, which are matrix products,
    convolutions and attention, of one forward pass. Running the example changes no random numbers,
    buffers, gradients or hooks, nor the module's mode, and compiles nothing.

    Wrappers, such as those of `torch.compile` and DDP, get no row. A weight that several layers
    share counts once in the totals. Lazy layers stay lazy: the example is not run then.

    Override `summarize` to show the summary in another form.

    Args:
        max_depth: the number of levels of submodules that get a row: 1 for the model's direct
            submodules, -1 for all levels; 0 for no summary.
        summarize_kwargs: passed on to `summarize`; the one of this class takes none.

    Raises:
        CallbackError: `max_depth` is not an integer of at least -1; when fit starts, an argument
            that `summarize` does not take.

    Example::

        trainer = Trainer(max_epochs=1, callbacks=[ModelSummary(max_depth=2)])
        trainer.fit(module, train_loader)
    """

    def __init__(self, max_depth: int = 1, **summarize_kwargs: Any) -> None:
        self.max_depth = check_depth(max_depth, type(self).__qualname__)
        self._summarize_kwargs = summarize_kwargs

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Summarize the model and print the table, unless there is nothing to train."""
        # a trainer of another framework has no such state
        is_idle = getattr(getattr(trainer, "state", None), "has_nothing_to_do", False)
        if self.max_depth == 0 or is_idle:
            return
        # on all ranks: the forward of a sharded model is a collective
        table = summarize(module, self.max_depth)
        if trainer.is_global_zero:
            with losing_output():
                self.summarize(
                    summary_data=table.data,
                    total_parameters=table.total_parameters,
                    trainable_parameters=table.trainable_parameters,
                    model_size=table.megabytes,
                    total_training_modes=table.total_training_modes,
                    total_flops=table.total_flops,
                    **self._summarize_kwargs,
                )

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
        """Print the summary; called with keyword arguments, on rank 0.

        Args:
            summary_data: the columns: the header of each, and its cells.
            total_parameters: the number of elements of all parameters.
            trainable_parameters: the number of those that require a gradient.
            model_size: the size of all parameters, in units of 10**6 bytes.
            total_training_modes: the number of submodules in mode `"train"`, and in `"eval"`.
            total_flops: floating-point operations of a forward of the example.
            summarize_kwargs: the callback's further arguments.

        Raises:
            CallbackError: the callback got an argument that this method does not take.
        """
        check_summarize_kwargs(summarize_kwargs, ())
        below = totals(
            total_parameters,
            trainable_parameters,
            model_size,
            total_training_modes,
            total_flops,
            summary_data,
        )
        print(text_table(summary_data, below))


def check_summarize_kwargs(names: Iterable[str], allowed: Iterable[str]) -> None:
    """Check that a summary got only the keyword arguments that it takes.

    Raises:
        CallbackError: it got another one.
    """
    unknown, taken = sorted(set(names) - set(allowed)), ", ".join(allowed)
    if unknown:
        raise CallbackError(
            f"summarize_kwargs {', '.join(unknown)} of a model summary: must be "
            f"{f'among {taken}' if taken else 'left out: the plain one takes none'}. Take it out, "
            "or override summarize to use it."
        )


class RichModelSummary(ModelSummary):
    """Show a table of the model's layers with rich when fit starts.

    It shows the same as `ModelSummary`, drawn as a coloured table on a terminal and in a notebook,
    and as the same plain text everywhere else. With a `RichProgressBar` it is the default summary.

    Args:
        max_depth: the number of levels of submodules that get a row: 1 for the model's direct
            submodules, -1 for all levels; 0 for no summary.
        summarize_kwargs: passed on to `summarize`; the one of this class takes `header_style`, the
            rich style of the headers (default: `"bold magenta"`).

    Raises:
        CallbackError: `max_depth` is not an integer of at least -1; when fit starts, an argument
            that `summarize` does not take.

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
        """Print the summary with rich; the arguments are those of `ModelSummary.summarize`."""
        with isolated():  # importing rich draws from Python's global random generator
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
        # not console.is_terminal: FORCE_COLOR makes that true for a log file too
        if not (console.is_jupyter or is_terminal(console.file)):
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
            # as Text: rich would read brackets as markup
            table.add_row(*map(Text, map(printable, row)))
        if table.row_count:
            console.print(table)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(justify="right")
        for figure, label in below:
            grid.add_row(figure, Text(label, style="bold"))
        console.print(grid)
