"""PrintMetricsCallback: the metrics of each epoch, printed or given to a sink of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["PrintMetricsCallback"]


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
        """Print a line for each metric; override it to do something else with them.

        Args:
            trainer: the trainer.
            metrics: the values by name.
        """
        for name, value in metrics.items():
            trainer.print(
                f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}"
            )

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Give what is about the training, now that the epoch is in the history."""
        self._give(trainer, lambda name: "train" in name)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Give what is not, except of a sanity check."""
        if not trainer.sanity_checking:
            self._give(trainer, lambda name: "train" not in name)

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Give what is not."""
        self._give(trainer, lambda name: "train" not in name)

    def _give(self, trainer: Trainer, is_wanted: Callable[[str], bool]) -> None:
        history = trainer.history
        names = sorted(filter(is_wanted, history.get_metric_names()))
        if names and trainer.is_global_zero:
            self.log_metrics(trainer, {name: history.get_latest_metric(name) for name in names})
