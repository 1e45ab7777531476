"""ModelSummary: what a model is made of, printed when fit starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.summary.table import check_depth, summarize, text_table, totals
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.callbacks.summary.table import SummaryData
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ModelSummary", "check_summarize_kwargs"]


class ModelSummary(Callback):
    """Print what the model is made of, when fit starts.

    With `module.example_input_array` set, the table has the sizes of what goes in and out of each
    layer, and its floating-point operations: those that torch counts, which are matrix products,
    convolutions and attention, of one forward pass. Running the example leaves no trace: not in
    random numbers, buffers, gradients, hooks, or the module's mode, and it compiles nothing.

    Wrappers, as those of `torch.compile` and DDP, are seen through. A weight that several layers
    share counts once in the totals. Lazy layers stay lazy: the example is not run then.

    Override `summarize` to show something else.

    Args:
        max_depth: how many levels of submodules get a row: 1 for those of the model itself, -1 for
            all; 0 for no summary.
        summarize_kwargs: passed on to `summarize`; the one of this class takes none.

    Raises:
        CallbackError: `max_depth` is no whole number from -1 on; when fit starts, an argument that
            `summarize` does not take.

    Example::

        trainer = Trainer(max_epochs=1, callbacks=[ModelSummary(max_depth=2)])
        trainer.fit(module, train_loader)
    """

    def __init__(self, max_depth: int = 1, **summarize_kwargs: Any) -> None:
        self.max_depth = check_depth(max_depth, type(self).__qualname__)
        self._summarize_kwargs = summarize_kwargs

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Print the table."""
        if self.max_depth == 0:
            return
        table = summarize(module, self.max_depth)  # on all processes: forward may need them all
        if trainer.is_global_zero:
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
        """Show the summary; called by keyword, on the main process.

        Args:
            summary_data: the columns: the header of each, and its cells.
            total_parameters: how many numbers all parameters hold.
            trainable_parameters: how many of them require a gradient.
            model_size: what they take, in units of 10**6 bytes.
            total_training_modes: how many submodules are in mode `"train"`, and in `"eval"`.
            total_flops: floating-point operations of a forward of the example.
            summarize_kwargs: what else the callback was given.

        Raises:
            CallbackError: the callback was given something else.
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


def check_summarize_kwargs(given: Iterable[str], known: Iterable[str]) -> None:
    """Make sure that a summary was given only arguments that it knows.

    Raises:
        CallbackError: it was given another one.
    """
    unknown, names = sorted(set(given) - set(known)), ", ".join(known)
    if unknown:
        raise CallbackError(
            f"summarize_kwargs {', '.join(unknown)} of a model summary: must be "
            f"{f'among {names}' if names else 'left out: the plain one takes none'}. Take it out, "
            "or override summarize to use it."
        )
