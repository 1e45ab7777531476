"""PrintMetricsCallback and PrintProgressCallback: print metrics and the progress of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


class PrintMetricsCallback(Callback):
    """Print the latest values of the run's history at the end of epochs and evaluations.

    Names with `train` in them are printed at the end of a training epoch, after its validation,
    and all others at the end of each validation and test; a sanity check prints none. Override
    `log_metrics` to send them elsewhere.

    Example::

        class Collected(PrintMetricsCallback):
            def __init__(self):
                self.rows = []

            def log_metrics(self, trainer, metrics):
                self.rows.append(dict(metrics))

        callback = Collected()
        trainer = Trainer(max_epochs=2, callbacks=[callback])
        trainer.fit(module, train_loader, val_loader)
        print(callback.rows)
    """

    band: ClassVar[Band] = Band.SINK

    def log_metrics(self, trainer: Trainer, metrics: Mapping[str, Any]) -> None:
        """Print a line for each metric; override it to send the metrics elsewhere.

        Args:
            trainer: the trainer.
            metrics: the values by name.
        """
        for name, value in metrics.items():
            # `trainer.print` writes above a progress bar
            trainer.print(
                f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}"
            )

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Print the training's metrics; the history has the epoch by now."""
        self._log_latest(trainer, lambda name: "train" in name)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Print the validation's metrics, except after a sanity check."""
        if not trainer.sanity_checking:
            self._log_latest(trainer, lambda name: "train" not in name)

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Print the test's metrics."""
        self._log_latest(trainer, lambda name: "train" not in name)

    def _log_latest(self, trainer: Trainer, is_wanted: Callable[[str], bool]) -> None:
        history = trainer.history
        names = sorted(filter(is_wanted, history.get_metric_names()))
        if names and trainer.is_global_zero:
            self.log_metrics(trainer, {name: history.get_latest_metric(name) for name in names})


class PrintProgressCallback(Callback):
    """Print a line as a fit or an evaluation begins and ends, and as each epoch begins.

    Epochs are counted from 1. The lines go above a progress bar; rank 0 alone prints.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[PrintProgressCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.SINK

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Print that the training begins."""
        self._print(trainer, "training run begins")

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Print the number of the epoch that begins."""
        last = f" of {trainer.max_epochs}" if trainer.max_epochs >= 0 else ""
        self._print(trainer, f"epoch {trainer.current_epoch + 1}{last}")

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Print that the training is over."""
        self._print(trainer, "training run is over")

    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Print that an evaluation begins."""
        self._print(trainer, f"evaluation run begins ({stage})")

    def on_evaluation_run_end(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Print that an evaluation is over."""
        self._print(trainer, f"evaluation run is over ({stage})")

    def _print(self, trainer: Trainer, text: str) -> None:
        if trainer.is_global_zero:
            trainer.print(text)
