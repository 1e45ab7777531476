"""Callbacks of pytorch-accelerated that end a run: EarlyStopping and TerminateOnNaN."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._options import FLAG, METRIC_NAME, check_option, finite_number, whole_number
from trainer_hooks.callbacks import EarlyStopping, NaNGuard
from trainer_hooks.callbacks.base import union_over_ranks
from trainer_hooks.callbacks.monitored_metric import resolve_metric_name
from trainer_hooks.compat.accelerated.built_in_callback import built_in
from trainer_hooks.errors import StopTraining
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["EarlyStoppingCallback", "TerminateOnNaNCallback"]


_WHERE = "EarlyStoppingCallback"


@partial(
    built_in,
    works_at={"on_training_run_epoch_end": ("on_train_epoch_end",)},
    works_anyway_at=("on_training_run_start",),
)
class EarlyStoppingCallback(EarlyStopping):
    """Ask the trainer to stop when a metric no longer improves, looking once an epoch.

    It is `EarlyStopping` with the arguments that pytorch-accelerated has, and checks at the end of
    each epoch, after its validation. `eval_loss_epoch` stands for `val_loss`, and
    `train_loss_epoch` for `train_loss`, where nothing of that name was logged. It stops by a
    `StopTrainingError`, so that `on_stop_training_error` is called; where the Trainer has
    `min_epochs` or `min_steps`, by `trainer.stop()`.

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
        early_stopping_patience: as given.
        early_stopping_threshold: as given.
        greater_is_better: as given.
        operator: `operator.gt` or `operator.lt`, by which a value is better than the best.

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
        self.watch_metric = check_option("monitor", watch_metric, _WHERE, METRIC_NAME)
        check_option("greater_is_better", greater_is_better, _WHERE, FLAG)
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold
        self.greater_is_better = greater_is_better
        self.operator = operator.gt if greater_is_better else operator.lt
        self.reset_on_train: bool = check_option("reset_on_train", reset_on_train, _WHERE, FLAG)
        super().__init__(
            watch_metric,
            check_option(
                "early_stopping_threshold", early_stopping_threshold, _WHERE, finite_number(0.0)
            ),
            check_option(
                "early_stopping_patience", early_stopping_patience, _WHERE, whole_number(1)
            ),
            mode="max" if greater_is_better else "min",
            check_on_train_epoch_end=True,
        )

    @property
    def best_metric(self) -> float | None:
        """The best value so far; None before the first."""
        best = float(self.best_score)
        return best if math.isfinite(best) else None

    @property
    def early_stopping_patience_counter(self) -> int:
        """The number of checks since the last improvement."""
        return int(self.wait_count)

    @property
    def state_key(self) -> str:
        """The class name with the metric and the direction in which it improves."""
        return self._generate_state_key(watch_metric=self.watch_metric, mode=self.mode)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the best value, unless this fit resumes or continues another."""
        super().on_fit_start(trainer, module)
        if self.reset_on_train and trainer.ckpt_path is None:
            self._reset()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Request the stop again if the resumed training had requested one."""
        self._resolve_monitor(trainer)
        super().on_train_start(trainer, module)

    def _run_early_stopping_check(self, trainer: Trainer) -> None:
        self._resolve_monitor(trainer)
        super()._run_early_stopping_check(trainer)
        has_minimum = bool(trainer.min_epochs or trainer.min_steps)
        # as there, so that `on_stop_training_error` is called; it would pass over a minimum
        if self._request and trainer.stop_reason == self._request and not has_minimum:
            raise StopTraining(self._request)

    def _resolve_monitor(self, trainer: Trainer) -> None:
        self.monitor = resolve_metric_name(self.watch_metric, trainer.callback_metrics)


_LOSS = "validation loss"


@partial(
    built_in,
    works_at={
        "on_train_step_end": (
            "on_before_backward",
            "on_before_optimizer_step",
            "on_after_train_batch",
            "on_train_batches_end",
        ),
        "on_eval_step_end": (
            "on_validation_after_loss",
            "on_validation_batch_end",
            "on_validation_end",
        ),
    },
)
class TerminateOnNaNCallback(NaNGuard):
    """End a run in order when a loss is NaN or infinite, in training or in a validation.

    The losses are looked at where they are: a GPU is waited for every `log_every_n_steps` steps, at
    the end of an epoch's batches and of a validation, so the run ends that much later. The end
    hooks fire, and nothing is raised from `fit`; `trainer.stop_reason` and the log say why. Of a
    validation step of the module's own the loss is what it returns, alone or under `"loss"`; what
    it only logs is not seen.

    It is `NaNGuard("stop", check="loss")` that looks at validations too.

    State: as `NaNGuard`: the events, and flags on the device that are still to be read.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import TerminateOnNaNCallback

        trainer = Trainer(max_epochs=2, callbacks=[TerminateOnNaNCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(self) -> None:
        super().__init__("stop", check="loss")
        self._is_validation_broken: Tensor | None = None

    @property
    def state_key(self) -> str:
        """The class name: two of them would do the same."""
        return type(self).__qualname__

    @property
    def triggered(self) -> bool:
        """Whether a loss was NaN or infinite."""
        return bool(self.events)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Drop the events of an earlier fit, unless this one resumes it."""
        super().on_fit_start(trainer, module)
        if trainer.ckpt_path is None:
            self.events.clear()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the verdict on this validation."""
        self._is_validation_broken = None

    def on_validation_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Check the loss of the default validation step, on its device."""
        self._check_loss(loss)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Check the loss that the module's own step returned, on its device."""
        self._check_loss(outputs.get("loss") if isinstance(outputs, dict) else outputs)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """End the run if a loss of this validation was not finite; a sanity check is ignored."""
        is_broken, self._is_validation_broken = self._is_validation_broken, None
        if trainer.sanity_checking:
            return
        # the first read of the flag, which waits for the device
        broken = [_LOSS] if is_broken is not None and bool(is_broken) else []
        # a loss may be broken on one rank alone, and all must end together
        if union_over_ranks(trainer, broken, (_LOSS,)):
            self.end_run(trainer, [_LOSS])

    def _check_loss(self, loss: Any) -> None:
        if isinstance(loss, Tensor) and loss.numel() == 1:
            is_broken = torch.isfinite(loss.detach()).logical_not().reshape(())
            before = self._is_validation_broken
            self._is_validation_broken = is_broken if before is None else is_broken | before
