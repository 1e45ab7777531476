"""Callbacks of pytorch-accelerated that write to the terminal: the progress bar and metrics."""

from __future__ import annotations

from trainer_hooks.callbacks import TQDMProgressBar
from trainer_hooks.compat.accelerated.built_in_callback import built_in
from trainer_hooks.compat.accelerated.callbacks.built_in import PrintMetricsCallback

__all__ = ["LogMetricsCallback", "ProgressBarCallback"]


@built_in
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
