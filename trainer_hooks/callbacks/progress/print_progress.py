"""PrintProgressCallback: a line as a run, or one of its epochs, begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["PrintProgressCallback"]


class PrintProgressCallback(Callback):
    """Print a line as a fit or an evaluation begins and ends, and as each epoch begins.

    Epochs are counted from 1. A progress bar is not torn; of several processes the first prints.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[PrintProgressCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.SINK

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Print that the training begins."""
        self._print(trainer, "training run begins")

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Print which epoch begins."""
        last = f" of {trainer.max_epochs}" if trainer.max_epochs >= 0 else ""
        self._print(trainer, f"epoch {trainer.current_epoch + 1}{last}")

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Print that the training is over."""
        self._print(trainer, "training run is over")

    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Print that an evaluation begins."""
        self._print(trainer, f"evaluation run begins ({stage})")

    def on_evaluation_run_end(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Print that it is over."""
        self._print(trainer, f"evaluation run is over ({stage})")

    def _print(self, trainer: Trainer, text: str) -> None:
        if trainer.is_global_zero:
            trainer.print(text)
