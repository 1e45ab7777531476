"""Callbacks of pytorch-accelerated that write to the terminal: the progress bar and metrics."""

from __future__ import annotations

from functools import partial

from trainer_hooks.callbacks import TQDMProgressBar
from trainer_hooks.compat.accelerated.built_in_callback import built_in
from trainer_hooks.compat.accelerated.callbacks.built_in import PrintMetricsCallback

__all__ = ["LogMetricsCallback", "ProgressBarCallback"]


@partial(
    built_in,
    works_at={
        "on_train_epoch_start": ("on_train_epoch_start",),
        "on_train_step_end": ("on_train_batch_end",),
        "on_train_epoch_end": ("on_train_batches_end", "on_train_epoch_end"),
        "on_eval_step_end": ("on_validation_batch_end", "on_test_batch_end"),
        "on_eval_epoch_end": ("on_validation_end", "on_test_end"),
    },
    works_anyway_at=("on_eval_epoch_start",),
)
class ProgressBarCallback(TQDMProgressBar):
    """Show progress with tqdm, under the name that pytorch-accelerated has for it.

    It is `TQDMProgressBar`, with all that it can do; a bar of an epoch stays on the screen when the
    next one begins.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import ProgressBarCallback

        trainer = Trainer(max_epochs=2, callbacks=[ProgressBarCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(self) -> None:
        super().__init__(leave=True)


# newer releases of pytorch-accelerated have renamed it
LogMetricsCallback = PrintMetricsCallback
