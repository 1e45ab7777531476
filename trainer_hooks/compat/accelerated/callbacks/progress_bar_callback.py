"""ProgressBarCallback: what pytorch-accelerated calls the bar of tqdm."""

from __future__ import annotations

from trainer_hooks.callbacks.progress.tqdm_progress import TQDMProgressBar

__all__ = ["ProgressBarCallback"]


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
