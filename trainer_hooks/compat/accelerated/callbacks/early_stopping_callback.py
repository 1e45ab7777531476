"""EarlyStoppingCallback: early stopping with the arguments of pytorch-accelerated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.callbacks.metric_names import name_of_metric
from trainer_hooks.callbacks.monitoring import (
    check_choice,
    check_count,
    check_monitor,
    check_number,
)
from trainer_hooks.callbacks.stopping.early_stopping import EarlyStopping

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["EarlyStoppingCallback"]

_WHERE = "EarlyStoppingCallback"


class EarlyStoppingCallback(EarlyStopping):
    """Ask the trainer to stop when a metric no longer improves, looking once an epoch.

    It is `EarlyStopping` with the arguments that pytorch-accelerated has, and checks at the end of
    each epoch, after its validation. `eval_loss_epoch` stands for `val_loss`, and
    `train_loss_epoch` for `train_loss`, where nothing of that name was logged.

    Args:
        early_stopping_patience: after how many epochs in a row without improvement it stops.
        early_stopping_threshold: by how much a value must beat the best one to be an improvement.
        watch_metric: the metric to watch.
        greater_is_better: whether larger values are better.
        reset_on_train: whether each call of `fit` begins anew, unless it resumes a checkpoint;
            otherwise a fit that goes on with a module goes on here as well.

    Attributes:
        watch_metric: as given.
        reset_on_train: as given.

    State: as `EarlyStopping`: the best value, how long it has waited, and its decision.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, the metric was not logged or is no single number.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import EarlyStoppingCallback

        stopper = EarlyStoppingCallback(early_stopping_patience=2)
        trainer = Trainer(max_epochs=2, callbacks=[stopper])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(
        self,
        early_stopping_patience: int = 1,
        early_stopping_threshold: float = 0.01,
        watch_metric: str = "eval_loss_epoch",
        greater_is_better: bool = False,
        reset_on_train: bool = True,
    ) -> None:
        self.watch_metric = check_monitor(watch_metric, _WHERE)
        check_choice("greater_is_better", greater_is_better, _WHERE, (True, False))
        self.reset_on_train: bool = check_choice(
            "reset_on_train", reset_on_train, _WHERE, (True, False)
        )
        super().__init__(
            watch_metric,
            check_number("early_stopping_threshold", early_stopping_threshold, _WHERE, least=0.0),
            check_count("early_stopping_patience", early_stopping_patience, _WHERE, least=1),
            mode="max" if greater_is_better else "min",
            check_on_train_epoch_end=True,
        )

    @property
    def state_key(self) -> str:
        """The class with what it watches, and which values are better."""
        return self._generate_state_key(watch_metric=self.watch_metric, mode=self.mode)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew, or go on."""
        super().on_fit_start(trainer, module)
        if self.reset_on_train and trainer.ckpt_path is None:
            self._forget()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Ask again to stop if a resumed training had stopped, by the name of the metric then."""
        self._look_up(trainer)
        super().on_train_start(trainer, module)

    def _check(self, trainer: Trainer) -> None:
        self._look_up(trainer)
        super()._check(trainer)

    def _look_up(self, trainer: Trainer) -> None:
        self.monitor = name_of_metric(self.watch_metric, trainer.callback_metrics)
