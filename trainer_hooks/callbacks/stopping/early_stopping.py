"""EarlyStopping: end a fit when a metric no longer improves."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._log import log, warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import (
    acts_at_train_epoch_end,
    advise_on_monitor,
    as_score,
    check_choice,
    check_count,
    check_monitor,
    check_number,
    check_text,
    is_better,
    missing_monitor,
)
from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["EarlyStopping", "EarlyStoppingReason"]

_WHERE = "EarlyStopping"


class EarlyStoppingReason(StrEnum):
    """Why EarlyStopping asked to stop."""

    NOT_STOPPED = "not_stopped"
    """It did not, or the reason has gone."""
    STOPPING_THRESHOLD = "stopping_threshold"
    """The metric is as good as it need be."""
    DIVERGENCE_THRESHOLD = "divergence_threshold"
    """The metric is worse than it may be."""
    PATIENCE_EXHAUSTED = "patience_exhausted"
    """The metric has not improved for `patience` checks."""
    NON_FINITE_METRIC = "non_finite_metric"
    """The metric is NaN or infinite."""


_REASONS = tuple(EarlyStoppingReason)
"""A reason's place is its number in a state, which is Lightning's number too."""


class EarlyStopping(Callback):
    """Ask the trainer to stop when a metric no longer improves.

    The trainer decides when it follows, so `min_epochs` and `min_steps` hold. An improvement before
    that withdraws the request.

    Args:
        monitor: the metric to watch.
        min_delta: by how much a value must beat the best one to count as an improvement.
        patience: after how many checks in a row without improvement it stops. A check is one
            validation or one epoch, see `check_on_train_epoch_end`.
        verbose: whether improvements and the decision are logged at level INFO.
        mode: `"min"` or `"max"`: which values are better.
        strict: whether a monitor that was not logged is an error; otherwise a warning, once.
        check_finite: whether NaN and infinity stop at once.
        stopping_threshold: stop at once when the metric reaches this value.
        divergence_threshold: stop at once when the metric is worse than this value.
        check_on_train_epoch_end: whether it checks at the end of training epochs (True) or after
            validations (False); by default the former where each epoch has one validation, at its
            end, and where there is none.
        log_rank_zero_only: whether of several processes the first alone logs what `verbose` says.
        name: tells two on one monitor and mode apart; part of the `state_key`.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is no single number.

    State: the best value, how long it has waited, and its decision with the value that led to it.
    The patience and the thresholds of this run count, not the checkpoint's: a run that had stopped
    asks to stop again only if it would by the present ones.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[EarlyStopping("val_loss", patience=5)])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.CONTROL

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
        yes_no = (True, False)
        self.monitor = check_monitor(monitor, _WHERE)
        self.min_delta = check_number("min_delta", min_delta, _WHERE, least=0.0)
        self.patience = check_count("patience", patience, _WHERE)
        self.verbose: bool = check_choice("verbose", verbose, _WHERE, yes_no)
        self.mode: str = check_choice("mode", mode, _WHERE)
        self.strict: bool = check_choice("strict", strict, _WHERE, yes_no)
        self.check_finite: bool = check_choice("check_finite", check_finite, _WHERE, yes_no)
        for option, bound in (
            ("stopping_threshold", stopping_threshold),
            ("divergence_threshold", divergence_threshold),
        ):
            if bound is not None:
                check_number(option, bound, _WHERE)
        self.stopping_threshold = stopping_threshold
        self.divergence_threshold = divergence_threshold
        self.check_on_train_epoch_end: bool | None = check_choice(
            "check_on_train_epoch_end", check_on_train_epoch_end, _WHERE, (None, *yes_no)
        )
        self.log_rank_zero_only: bool = check_choice(
            "log_rank_zero_only", log_rank_zero_only, _WHERE, yes_no
        )
        self.name = check_text("name", name, _WHERE)
        self._is_warned = False
        self._request = ""
        self.stopping_reason_message: str | None = None
        self.stopping_value: float | None = None
        self._forget()

    @property
    def monitor_op(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The comparison of torch by which a value is better than another: `lt` or `gt`."""
        return torch.lt if self.mode == "min" else torch.gt

    @property
    def state_key(self) -> str:
        """The class with its monitor and mode, and its name if it has one."""
        named = {} if self.name is None else {"name": self.name}
        return self._generate_state_key(monitor=self.monitor, mode=self.mode, **named)

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen and decided."""
        return {
            "wait_count": self.wait_count,
            "stopped_epoch": self.stopped_epoch,
            "best_score": self.best_score,
            "patience": self.patience,
            "stopping_reason": _REASONS.index(self.stopping_reason),
            "stopping_reason_message": self.stopping_reason_message,
            "stopping_value": self.stopping_value,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what was seen and decided, but not what was chosen."""
        self.wait_count = state_dict["wait_count"]
        self.stopped_epoch = state_dict["stopped_epoch"]
        self.best_score = state_dict["best_score"]
        reason = state_dict.get("stopping_reason", 0)
        is_number = isinstance(reason, int)  # older states have the text
        self.stopping_reason = _REASONS[reason] if is_number else EarlyStoppingReason(reason)
        self.stopping_reason_message = state_dict.get("stopping_reason_message")
        self.stopping_value = state_dict.get("stopping_value")

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Forget an earlier training when a new one begins."""
        self._request = ""
        if trainer.progress.is_fresh:
            self._forget()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Ask again to stop if a resumed training had stopped and would by this run's options."""
        value = self.stopping_value
        if value is not None:
            self._decide(trainer, *self._verdict(value), value, self.stopped_epoch)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Check, if it checks after validations."""
        advise_on_monitor(self.monitor, _WHERE, trainer)
        if not acts_at_train_epoch_end(trainer, self.check_on_train_epoch_end):
            self._check(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Check, if it checks at the end of training epochs."""
        if acts_at_train_epoch_end(trainer, self.check_on_train_epoch_end):
            self._check(trainer)

    def _forget(self) -> None:
        self.wait_count = 0
        self.stopped_epoch = 0
        self.best_score = torch.tensor(math.inf if self.mode == "min" else -math.inf)
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        self.stopping_reason_message = None
        self.stopping_value = None

    def _check(self, trainer: Trainer) -> None:
        """Look at the metric and decide."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or trainer.fast_dev_run:
            return
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            self._report_missing(missing_monitor(self.monitor, _WHERE, metrics))
            return
        score = as_score(metrics[self.monitor], self.monitor, _WHERE)
        value, best = score.item(), self.best_score.item()
        if is_better(value, best, self.mode, self.min_delta) and self._is_acceptable(value):
            self.wait_count, self.best_score = 0, score
            self._tell(trainer, f"{self.monitor} improved from {best:.5g} to {value:.5g}")
        else:
            self.wait_count += 1
        self._decide(trainer, *self._verdict(value), value, trainer.current_epoch)

    def _is_acceptable(self, value: float) -> bool:
        return math.isfinite(value) or not self.check_finite

    def _report_missing(self, message: str) -> None:
        if self.strict:
            raise MetricError(message)
        if not self._is_warned:
            self._is_warned = True
            warn(message, TrainerHooksWarning)

    def _verdict(self, value: float) -> tuple[EarlyStoppingReason, str | None]:
        """Return why to stop at this value, if so, and the same in words."""
        least, most, best = self.stopping_threshold, self.divergence_threshold, self.best_score
        if not self._is_acceptable(value):
            return (
                EarlyStoppingReason.NON_FINITE_METRIC,
                f"{self.monitor} is {value}, not a finite number; the best was {best.item():.5g}",
            )
        if least is not None and not is_better(least, value, self.mode):
            return (
                EarlyStoppingReason.STOPPING_THRESHOLD,
                f"{self.monitor} {value:.5g} reached the stopping threshold {least:.5g}",
            )
        if most is not None and not math.isnan(value) and is_better(most, value, self.mode):
            return (
                EarlyStoppingReason.DIVERGENCE_THRESHOLD,
                f"{self.monitor} {value:.5g} is worse than the divergence threshold {most:.5g}",
            )
        if self.wait_count > 0 and self.wait_count >= self.patience:
            return (
                EarlyStoppingReason.PATIENCE_EXHAUSTED,
                f"{self.monitor} not better in {self.wait_count} checks; best {best.item():.5g}",
            )
        return EarlyStoppingReason.NOT_STOPPED, None

    def _decide(
        self,
        trainer: Trainer,
        reason: EarlyStoppingReason,
        message: str | None,
        value: float,
        epoch: int,
    ) -> None:
        """Keep a decision, which may be to go on after all, and tell the trainer."""
        self.stopping_reason, self.stopping_reason_message = reason, message
        if message is None:
            self.stopped_epoch, self.stopping_value = 0, None
            self._withdraw(trainer)
            return
        self.stopped_epoch, self.stopping_value = epoch, value
        self._tell(trainer, message)
        if not trainer.should_stop:
            self._request = f"EarlyStopping: {message}"
            trainer.stop(self._request)

    def _tell(self, trainer: Trainer, message: str) -> None:
        if self.verbose and (trainer.is_global_zero or not self.log_rank_zero_only):
            log.info("EarlyStopping: %s", message)

    def _withdraw(self, trainer: Trainer) -> None:
        """Take back a stop that the trainer has not followed yet, if it was this callback's own."""
        if self._request and trainer.should_stop and trainer.stop_reason == self._request:
            trainer.should_stop = False
        self._request = ""
