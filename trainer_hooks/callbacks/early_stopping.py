"""EarlyStopping: stop a fit when a metric no longer improves."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from trainer_hooks._log import log, warn
from trainer_hooks._options import (
    FLAG,
    METRIC_NAME,
    TEXT,
    finite_number,
    one_of,
    option_rules,
    whole_number,
)
from trainer_hooks._text import count_with_noun
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitored_metric import (
    a_tensor_of_one_number,
    acts_at_train_epoch_end,
    advise_on_missing_validation,
    advise_on_misspelt_monitor,
    advise_on_mode,
    as_score,
    has_validation,
    is_better,
    lacks_validation,
    missing_monitor_message,
    require_validation,
)
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "EarlyStopping"


class EarlyStoppingReason(StrEnum):
    """The reason for which EarlyStopping requested a stop."""

    NOT_STOPPED = "not_stopped"
    """It requested no stop, or withdrew the request."""
    STOPPING_THRESHOLD = "stopping_threshold"
    """The metric reached `stopping_threshold`."""
    DIVERGENCE_THRESHOLD = "divergence_threshold"
    """The metric is worse than `divergence_threshold`."""
    PATIENCE_EXHAUSTED = "patience_exhausted"
    """The metric has not improved for `patience` checks."""
    NON_FINITE_METRIC = "non_finite_metric"
    """The metric is NaN or infinite."""


_REASONS = tuple(EarlyStoppingReason)
"""A reason's index is its number in a checkpoint, which is the number that Lightning uses."""


def _a_known_reason(value: object) -> bool:
    """Return whether a value of a saved state is the number of a reason."""
    return type(value) is int and value in range(len(_REASONS))


class EarlyStopping(Callback):
    """Request a stop of the fit when a metric no longer improves.

    The trainer decides when it stops, so `min_epochs` and `min_steps` hold. An improvement before
    that withdraws the request.

    Args:
        monitor: the name of the metric.
        min_delta: the difference by which a value must beat the best one to count as improvement;
            below 0 a slightly worse value counts, too.
        patience: the number of checks in a row without improvement after which it stops. A check is
            one validation or one epoch, see `check_on_train_epoch_end`.
        verbose: whether improvements and the decision are logged at level INFO.
        mode: `"min"` or `"max"`: whether lower or higher values are better.
        strict: whether a monitor that was not logged is an error; otherwise a warning, once.
        check_finite: whether NaN and infinity stop at once.
        stopping_threshold: stop at once when the metric reaches this value.
        divergence_threshold: stop at once when the metric is worse than this value.
        check_on_train_epoch_end: whether it checks at the end of training epochs (True) or after
            validations (False). By default it checks at the end of training epochs where each epoch
            has one validation, at its end, and where there is no validation.
        log_rank_zero_only: whether rank 0 alone logs the messages of `verbose`.
        name: distinguishes two callbacks with one monitor and mode; part of the `state_key`.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is not a single number.

    State: the best value, the number of checks without improvement, and the decision with the value
    that led to it. The patience and the thresholds of this run count, not the checkpoint's: a run
    that had stopped requests a stop again only if its present options call for one.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[EarlyStopping("val_loss", patience=5)])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.CONTROL
    renews_stop: ClassVar[bool] = True

    @option_rules(
        monitor=METRIC_NAME,
        min_delta=finite_number(),
        patience=whole_number(),
        verbose=FLAG,
        mode=one_of("min", "max"),
        strict=FLAG,
        check_finite=FLAG,
        log_rank_zero_only=FLAG,
        name=TEXT,
        stopping_threshold=finite_number().unless(None),
        divergence_threshold=finite_number().unless(None),
        check_on_train_epoch_end=one_of(None, True, False),
    )
    def __init__(
        self,
        monitor: str,
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: str = "min",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
        name: str | None = None,
    ) -> None:
        self.monitor = monitor
        self.min_delta = min_delta
        self.patience = patience
        self.verbose = verbose
        self.mode = mode
        self.strict = strict
        self.check_finite = check_finite
        self.stopping_threshold = stopping_threshold
        self.divergence_threshold = divergence_threshold
        self.check_on_train_epoch_end = check_on_train_epoch_end
        self.log_rank_zero_only = log_rank_zero_only
        self.name = name
        advise_on_mode(monitor, mode, type(self).__name__)
        self._is_warned = False
        self._request = ""
        self.stopping_reason_message: str | None = None
        self.stopping_value: float | None = None
        self._reset()

    @property
    def monitor_op(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The torch function that returns whether a value beats another: `lt` or `gt`."""
        return torch.lt if self.mode == "min" else torch.gt

    @property
    def state_key(self) -> str:
        """The class name with the monitor, the mode, and the name if one was given."""
        named = {} if self.name is None else {"name": self.name}
        return self._generate_state_key(monitor=self.monitor, mode=self.mode, **named)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, the count of checks without improvement, and the decision."""
        return {
            "wait_count": self.wait_count,
            "stopped_epoch": self.stopped_epoch,
            "best_score": self.best_score,
            # in Lightning's states too, though nobody restores an option
            "patience": self.patience,
            "stopping_reason": _REASONS.index(self.stopping_reason),
            "stopping_reason_message": self.stopping_reason_message,
            "stopping_value": self.stopping_value,
        }

    @checks_state(
        {"wait_count": int, "stopped_epoch": int, "best_score": (float, a_tensor_of_one_number)},
        {
            "stopping_reason": _a_known_reason,
            "stopping_reason_message": str | None,
            "stopping_value": float | None,
        },
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value, the count and the decision, but no option."""
        self.best_score = as_score(state_dict["best_score"], self.monitor, _WHERE)
        self.stopping_reason = _REASONS[state_dict.get("stopping_reason", 0)]
        self.wait_count, self.stopped_epoch = state_dict["wait_count"], state_dict["stopped_epoch"]
        # Lightning's states lack the message and the value
        self.stopping_reason_message = state_dict.get("stopping_reason_message")
        value = state_dict.get("stopping_value")
        self.stopping_value = None if value is None else float(value)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the state when a new training begins."""
        self._request = ""
        if trainer.progress.is_new_training:
            self._reset()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Request a stop again if a resumed training had stopped and this run's options agree.

        A validation metric that no validation of this fit can log is an error with `strict`, and
        advised of if only hooks of training could log it.

        Raises:
            MetricError: a validation would log the metric, and this fit runs none.
        """
        if self.strict and not trainer.fast_dev_run:
            require_validation(self.monitor, _WHERE, trainer, module)
        advise_on_missing_validation(self.monitor, _WHERE, trainer)
        # a resumed trainer starts without the stop request
        value = self.stopping_value
        if value is not None:
            self.stopping_reason, message = self._verdict(value)
            self._decide(trainer, message, value, self.stopped_epoch)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Check the metric, if checks follow validations."""
        advise_on_misspelt_monitor(self.monitor, _WHERE, trainer)
        if not acts_at_train_epoch_end(trainer, self.check_on_train_epoch_end):
            self._check_unless_skipped(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Check the metric, if checks follow training epochs."""
        if acts_at_train_epoch_end(trainer, self.check_on_train_epoch_end):
            self._check_unless_skipped(trainer)

    def _reset(self) -> None:
        self.wait_count = 0
        self.stopped_epoch = 0
        # a tensor, as in Lightning's checkpoints
        self.best_score = torch.tensor(math.inf if self.mode == "min" else -math.inf)
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        self.stopping_reason_message = None
        self.stopping_value = None

    def _check_unless_skipped(self, trainer: Trainer) -> None:
        if not self._should_skip_check(trainer):
            self._run_early_stopping_check(trainer)

    # under these names subclasses for Lightning override them

    def _should_skip_check(self, trainer: Trainer) -> bool:
        """Return whether this moment's metrics decide nothing."""
        # the sanity check and a dry run see a few batches only
        return trainer.state.fn != "fit" or trainer.sanity_checking or bool(trainer.fast_dev_run)

    def _run_early_stopping_check(self, trainer: Trainer) -> None:
        """Read the metric, update the best value and the count, and decide."""
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            self._report_missing(
                missing_monitor_message(
                    self.monitor,
                    _WHERE,
                    metrics,
                    lacks_validation=lacks_validation(self.monitor, trainer),
                    awaits_validation=has_validation(trainer) and trainer.progress.validated_at < 0,
                )
            )
            return
        score = as_score(metrics[self.monitor], self.monitor, _WHERE)
        best = self.best_score.item()
        stops, message = self._evaluate_stopping_criteria(score)
        value = score.item()
        if self.best_score.item() != best:
            self._log_if_verbose(trainer, f"{self.monitor} improved from {best:.5g} to {value:.5g}")
        self._decide(trainer, message if stops else None, value, trainer.current_epoch)

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        """Update the best value and the count; return whether to stop, and the message of it."""
        value, best = current.item(), self.best_score.item()
        # an infinite value beats any loss in mode "max", so it must pass the finite check as well
        if is_better(value, best, self.mode, self.min_delta) and self._is_acceptable(value):
            self.wait_count, self.best_score = 0, current
        else:
            self.wait_count += 1
        self.stopping_reason, message = self._verdict(value)
        return message is not None, message

    def _is_acceptable(self, value: float) -> bool:
        return math.isfinite(value) or not self.check_finite

    def _report_missing(self, message: str) -> None:
        if self.strict:
            raise MetricError(message)
        if not self._is_warned:
            self._is_warned = True
            warn(message, TrainerHooksWarning)

    def _verdict(self, value: float) -> tuple[EarlyStoppingReason, str | None]:
        """Return the reason to stop at this value, `NOT_STOPPED` if none, and its message."""
        least, most, best = self.stopping_threshold, self.divergence_threshold, self.best_score
        if not self._is_acceptable(value):
            return (
                EarlyStoppingReason.NON_FINITE_METRIC,
                f"{self.monitor} is {value}, not a finite number; the best was {best.item():.5g}",
            )
        # equality reaches the stopping threshold, and does not exceed the divergence threshold
        if least is not None and not is_better(least, value, self.mode):
            return (
                EarlyStoppingReason.STOPPING_THRESHOLD,
                f"{self.monitor} {value:.5g} reached the stopping threshold {least:.5g}",
            )
        # `is_better` takes NaN for worse than anything, and without `check_finite` NaN may stay
        if most is not None and not math.isnan(value) and is_better(most, value, self.mode):
            return (
                EarlyStoppingReason.DIVERGENCE_THRESHOLD,
                f"{self.monitor} {value:.5g} is worse than the divergence threshold {most:.5g}",
            )
        # with a patience of 0 a check that brought an improvement must not stop
        if self.wait_count > 0 and self.wait_count >= self.patience:
            waited = count_with_noun(self.wait_count, "check")
            return (
                EarlyStoppingReason.PATIENCE_EXHAUSTED,
                f"{self.monitor} did not improve in {waited}; best {best.item():.5g}",
            )
        return EarlyStoppingReason.NOT_STOPPED, None

    def _decide(
        self,
        trainer: Trainer,
        message: str | None,
        value: float,
        epoch: int,
    ) -> None:
        """Store a decision and request a stop, or withdraw an earlier request."""
        self.stopping_reason_message = message
        if message is None:
            self.stopped_epoch, self.stopping_value = 0, None
            # only a request of our own that the trainer has not followed yet
            if self._request and trainer.should_stop and trainer.stop_reason == self._request:
                trainer.should_stop = False
            self._request = ""
            return
        self.stopped_epoch, self.stopping_value = epoch, value
        self._log_if_verbose(trainer, message)
        # another stop request keeps its reason; only a request of our own is withdrawn later
        if not trainer.should_stop:
            self._request = f"EarlyStopping: {message}"
            trainer.stop(self._request)

    def _log_if_verbose(self, trainer: Trainer, message: str) -> None:
        if self.verbose and (trainer.is_global_zero or not self.log_rank_zero_only):
            log.info("EarlyStopping: %s", message)
