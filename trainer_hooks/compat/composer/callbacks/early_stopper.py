"""EarlyStopper and ThresholdStopper: stop by a metric, with Composer's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._options import (
    FLAG,
    METRIC_NAME,
    TEXT,
    check_option,
    finite_number,
    whole_number,
)
from trainer_hooks.callbacks.base import is_real_fit
from trainer_hooks.callbacks.monitored_metric import as_score, missing_monitor_message
from trainer_hooks.clock.timing import Time, TimeUnit, parse_time
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn, composer_state
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import MetricError, OptionError, did_you_mean
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["EarlyStopper", "ThresholdStopper"]

_EARLY_STOPPER = "EarlyStopper"
_THRESHOLD_STOPPER = "ThresholdStopper"
_UNITS = (
    TimeUnit.ITERATION,
    TimeUnit.EPOCH,
    TimeUnit.BATCH,
    TimeUnit.STEP,
    TimeUnit.SAMPLE,
    TimeUnit.TOKEN,
)
_COMPARISONS = {"gt": torch.gt, "greater": torch.gt, "lt": torch.lt, "less": torch.lt}
_LESS_IS_BETTER = ("loss", "error", "perplexity")
"""Parts of the names of metrics of which smaller values are better."""
_TRAIN = "train"


class MetricStopper(ComposerBuiltIn):
    """Base of Composer's stoppers: check one loader's metric after validations or training epochs.

    A subclass decides in `_check` whether to stop, and resets its state in `_reset`.

    Args:
        monitor: the name of the metric.
        dataloader_label: the label of the loader whose metric it is; `"train"` for the training.
        comp: which values are better.
        checks_batches: whether a metric of the training is also checked after each batch.
    """

    band: ClassVar[Band] = Band.CONTROL
    renews_stop: ClassVar[bool] = True

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        comp: str | Callable[[Tensor, Tensor], Any] | None,
        checks_batches: bool,
    ) -> None:
        where = type(self).__name__
        self.monitor = check_option("monitor", monitor, where, METRIC_NAME)
        if check_option("dataloader_label", dataloader_label, where, TEXT) is None:
            raise OptionError(
                f"dataloader_label None of {where}: it must be 'train' or the label of an "
                "evaluator. Pass 'eval' where there is one validation loader without a label."
            )
        self.dataloader_label = dataloader_label
        self.comp = _parse_comparison(comp, monitor, where)
        self._checks_batches = checks_batches and dataloader_label == _TRAIN
        self._metric_before: Any = None
        self._has_validated = False

    @property
    def state_key(self) -> str:
        """`ClassName{'monitor': ..., 'dataloader_label': ...}`."""
        return self._generate_state_key(
            monitor=self.monitor, dataloader_label=self.dataloader_label
        )

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the state when a new training begins."""
        self._has_validated = False
        if trainer.progress.is_new_training:
            self._reset()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check a metric of the training, if each batch is checked."""
        is_known = self._metric_name(trainer) in trainer.callback_metrics
        if self._checks_batches and (is_known or self._train_metric(trainer) is not None):
            self._check_metric(trainer)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Keep the metric from before: not every validation runs every evaluator."""
        self._metric_before = trainer.callback_metrics.get(self._metric_name(trainer))

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Check the metric, if the validation logged it."""
        if self.dataloader_label == _TRAIN or trainer.sanity_checking:
            return
        self._has_validated = True
        # of several loaders, some may have their own interval and not have run
        is_only_loader = len(trainer.num_val_batches) == 1
        metric = trainer.callback_metrics.get(self._metric_name(trainer))
        # by identity: a new value that equals the old one is a new tensor
        if metric is not self._metric_before or (metric is None and is_only_loader):
            self._check_metric(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Check a metric of the training."""
        if self.dataloader_label == _TRAIN:
            self._check_metric(trainer)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Raise an error if the metric was never logged: it could not stop the training."""
        # a fit that never validated had no occasion to log it
        is_missing = self._metric_name(trainer) not in trainer.callback_metrics
        if self._has_validated and is_missing and is_real_fit(trainer):
            raise self._missing_error(trainer)

    def _metric_name(self, trainer: Trainer) -> str:
        """Return the metric's logged name, with the loader's label if it was logged so."""
        labelled = f"{self.monitor}/{self.dataloader_label}"
        return labelled if labelled in trainer.callback_metrics else self.monitor

    def _check_metric(self, trainer: Trainer) -> None:
        """Call `_check` with the metric's value."""
        if not is_real_fit(trainer):
            return
        metrics, name = trainer.callback_metrics, self._metric_name(trainer)
        train_metric = self._train_metric(trainer)
        if train_metric is not None:
            value = torch.as_tensor(train_metric.compute())
            self._check(trainer, as_score(value, self.monitor, type(self).__name__))
            return
        if name not in metrics:
            raise self._missing_error(trainer)
        self._check(trainer, as_score(metrics[name], name, type(self).__name__))

    def _train_metric(self, trainer: Trainer) -> Any:
        """Return the ComposerModel's metric object of the training, or None."""
        state = composer_state(trainer) if self.dataloader_label == _TRAIN else None
        return None if state is None else state.train_metrics.get(self.monitor)

    def _missing_error(self, trainer: Trainer) -> MetricError:
        state, where = composer_state(trainer), type(self).__name__
        if state is None or self.dataloader_label != _TRAIN:
            return MetricError(
                missing_monitor_message(self.monitor, where, trainer.callback_metrics)
            )
        names = [*state.train_metrics, *trainer.callback_metrics]
        return MetricError(
            f"monitor {self.monitor!r} of {where}: it must be a metric of the training; there are "
            f"{', '.join(map(repr, names)) or 'none'}.{did_you_mean(self.monitor, names)} Return "
            "it from get_metrics(is_train=True) of the model, or choose another monitor or label."
        )

    def _is_better(self, value: Tensor, other: Tensor) -> bool:
        return bool(self.comp(value, other))

    def _reset(self) -> None:
        raise NotImplementedError

    def _check(self, trainer: Trainer, score: Tensor) -> None:
        raise NotImplementedError


def _parse_comparison(
    comp: str | Callable[[Tensor, Tensor], Any] | None, monitor: str, where: str
) -> Callable[[Tensor, Tensor], Any]:
    """Return the comparison of an argument, or the usual one for the metric's name.

    Args:
        comp: the name of a comparison, a function of two tensors, or None.
        monitor: the name of the metric.
        where: the class, for the error.

    Raises:
        OptionError: the name is unknown.
    """
    if comp is None:
        is_less = any(part in monitor.lower() for part in _LESS_IS_BETTER)
        return torch.lt if is_less else torch.gt
    if isinstance(comp, str) and comp.lower() in _COMPARISONS:
        return _COMPARISONS[comp.lower()]
    if callable(comp):
        return comp
    hint = did_you_mean(comp, list(_COMPARISONS)) if isinstance(comp, str) else ""
    raise OptionError(
        f"comp {comp!r} of {where}: it must be one of {', '.join(map(repr, _COMPARISONS))}, or a "
        f"function of two tensors.{hint} Choose one, or pass a function such as torch.less."
    )


class EarlyStopper(MetricStopper):
    """Ask the trainer to stop when a metric has not improved for some time.

    It has Composer's arguments; `EarlyStopping` has Lightning's, and counts checks. A metric of the
    validation is checked after each validation that logs it, one of the training at the end of each
    epoch, and with a patience in batches after each batch. The trainer stops after `min_epochs` and
    `min_steps` at the earliest.

    Args:
        monitor: the name of the metric.
        dataloader_label: the label of the evaluator that logs it as `monitor/label`; another text,
            such as `"eval"`, if the validation logs it under its plain name; `"train"` for a metric
            of the training.
        comp: which values are better: `"gt"` or `"greater"`, `"lt"` or `"less"`, or a function of
            two tensors, the metric and the best one, such as `torch.less`. By default smaller ones
            where the name contains `loss`, `error` or `perplexity`, otherwise larger ones.
        min_delta: the difference from the best value above which a value is an improvement.
        patience: the age of the best value above which it stops: a number of epochs, or a time such
            as `"2ep"`, `"500ba"` or `Time("1e6tok")`.

    Attributes:
        best: the best value, or None.
        best_occurred: the counts of the training at the best value, by unit; empty before.
        is_stopped: whether it requested the stop.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is no single number.

    State: the best value, its counts, and whether it requested the stop. A resumed run requests it
    again only if the present patience has passed.

    Example::

        from trainer_hooks.compat.composer.callbacks import EarlyStopper

        stopper = EarlyStopper("val_loss", "eval", patience="2ep")
        trainer = Trainer(max_epochs=2, callbacks=[stopper])
        trainer.fit(module, train_loader, val_loader)
    """

    best: float | None
    best_occurred: dict[str, int]

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        comp: str | Callable[[Tensor, Tensor], Any] | None = None,
        min_delta: float = 0.0,
        patience: int | str | Time = 1,
    ) -> None:
        if isinstance(patience, int):
            self.patience = Time(
                check_option("patience", patience, _EARLY_STOPPER, whole_number()), TimeUnit.EPOCH
            )
        else:
            self.patience = parse_time(patience, "patience", _EARLY_STOPPER, units=_UNITS)
        is_in_batches = self.patience.unit is TimeUnit.BATCH
        super().__init__(monitor, dataloader_label, comp, checks_batches=is_in_batches)
        self.min_delta = check_option("min_delta", min_delta, _EARLY_STOPPER, finite_number(0.0))
        self._reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, its counts, and whether it requested the stop."""
        return {
            "best": self.best,
            "best_occurred": dict(self.best_occurred),
            "is_stopped": self.is_stopped,
        }

    @checks_state({"best": float | None, "best_occurred": dict[str, float], "is_stopped": bool})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.best = state_dict["best"]
        self.best_occurred = dict(state_dict["best_occurred"])
        self.is_stopped = state_dict["is_stopped"]

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Request the stop again if a resumed training had stopped and still would."""
        # a resume with more patience trains on
        was_stopped, self.is_stopped = self.is_stopped, False
        if was_stopped:
            self._stop_if_late(trainer)

    def _reset(self) -> None:
        self.best = None
        self.best_occurred = {}
        self.is_stopped = False

    def _check(self, trainer: Trainer, score: Tensor) -> None:
        if self._is_improved(score):
            self.best = score.item()
            self.best_occurred = _counts(trainer.clock)
        self._stop_if_late(trainer)

    def _is_improved(self, score: Tensor) -> bool:
        """Return whether a value is better than the best one by more than `min_delta`."""
        if self.best is None:
            return True
        # in the score's type: torch's default one would round the best of a 64-bit metric
        best = torch.tensor(self.best, dtype=score.dtype)
        if bool(best.isnan()):  # no value compares as better than NaN
            return not bool(score.isnan())
        return self._is_better(score, best) and bool((score - best).abs() > self.min_delta)

    def _stop_if_late(self, trainer: Trainer) -> None:
        unit = self.patience.unit.value
        age = _counts(trainer.clock)[unit] - self.best_occurred[unit]
        # above and not at, as in Composer: a patience of 1ep bears one epoch without improvement
        if age > self.patience.value:
            self.is_stopped = True
            trainer.stop(
                f"{_EARLY_STOPPER}: {self.monitor} did not improve in {Time(age, unit)}; best "
                f"{self.best:.5g}"
            )


def _counts(clock: Clock) -> dict[str, int]:
    return {unit.value: int(clock.count(unit)) for unit in _UNITS}


class ThresholdStopper(MetricStopper):
    """Ask the trainer to stop when a metric is better than a threshold.

    It has Composer's arguments; `EarlyStopping(stopping_threshold=...)` does the same with
    Lightning's. A metric of the validation is checked after each validation that logs it, one of
    the training at the end of each epoch. The trainer stops after `min_epochs` and `min_steps` at
    the earliest.

    Args:
        monitor: the name of the metric.
        dataloader_label: the label of the evaluator that logs it as `monitor/label`; another text,
            such as `"eval"`, if the validation logs it under its plain name; `"train"` for a metric
            of the training.
        threshold: the value that the metric must be better than, not only equal to.
        comp: which values are better: `"gt"` or `"greater"`, `"lt"` or `"less"`, or a function of
            two tensors, the metric and the threshold, such as `torch.less`. By default smaller ones
            where the name contains `loss`, `error` or `perplexity`, otherwise larger ones.
        stop_on_batch: whether a metric of the training is also checked after each batch; each check
            waits for the device.

    Attributes:
        stopping_value: the value at which it requested the stop, or None.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is no single number.

    State: the value at which it requested the stop. A resumed run requests it again if that value
    passes the present threshold.

    Example::

        from trainer_hooks.compat.composer.callbacks import ThresholdStopper

        stopper = ThresholdStopper("val_acc", "eval", 0.9)
        trainer = Trainer(max_epochs=2, callbacks=[stopper])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        threshold: float,
        *,
        comp: str | Callable[[Tensor, Tensor], Any] | None = None,
        stop_on_batch: bool = False,
    ) -> None:
        check_option("stop_on_batch", stop_on_batch, _THRESHOLD_STOPPER, FLAG)
        super().__init__(monitor, dataloader_label, comp, checks_batches=stop_on_batch)
        self.threshold = check_option("threshold", threshold, _THRESHOLD_STOPPER, finite_number())
        self.stop_on_batch = stop_on_batch
        self.stopping_value: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the value at which it requested the stop."""
        return {"stopping_value": self.stopping_value}

    @checks_state({"stopping_value": float | None})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.stopping_value = state_dict["stopping_value"]

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Request the stop again if a resumed training had stopped and still would."""
        value, self.stopping_value = self.stopping_value, None
        if value is not None:
            self._check(trainer, torch.tensor(value))

    def _reset(self) -> None:
        self.stopping_value = None

    def _check(self, trainer: Trainer, score: Tensor) -> None:
        if not self._is_better(score, torch.tensor(self.threshold)):
            return
        self.stopping_value = score.item()
        trainer.stop(
            f"{_THRESHOLD_STOPPER}: {self.monitor} {self.stopping_value:.5g} passed the threshold "
            f"{self.threshold:.5g}"
        )
