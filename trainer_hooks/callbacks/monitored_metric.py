"""The metric that a callback monitors: its value, its messages, and when a validation is due.

Early stopping, the savers and their counterparts in `compat` use it.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import MetricError, TrainerHooksAdvice, TrainerHooksWarning, did_you_mean
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from trainer_hooks.context.context import Trainer

_SIMILARITY = 0.85
"""The `difflib` ratio from which a logged name counts as a misspelling of the monitor."""
_ACCELERATED_NAMES = {
    "eval_loss_epoch": ("val_loss_epoch", "val_loss"),
    "train_loss_epoch": ("train_loss",),
}


_MORE_IS_BETTER = frozenset(
    {
        *("acc", "accuracy", "auc", "auprc", "auroc", "bleu", "dice", "f1", "iou", "map", "miou"),
        *("mrr", "ndcg", "precision", "psnr", "r2", "recall", "rouge", "ssim"),
    }
)
_LESS_IS_BETTER = frozenset({"cost", "err", "error", "loss"})
_TURNED = frozenset(
    {
        *("decrease", "diff", "difference", "drop", "gain", "improvement", "inv", "inverse"),
        *("minus", "neg", "negated", "negative", "reduction", "reward"),
    }
)
"""Words that turn another word of a name round: of `neg_loss` more is better."""
_OF_VALIDATION = frozenset({"eval", "val", "valid", "validation"})
_WORD = re.compile(r"[A-Z]+\d*(?![a-z])|[A-Z]?[a-z]+\d*")
"""A word of a name such as `val_MulticlassF1Score`, with its number."""
_VALIDATION_CURE = (
    "Pass validation data, and a module with a validation_step; or choose a metric that "
    "training_step logs."
)


class MonitoredMetric:
    """A monitored metric that is read at moments other than those at which it is logged.

    Args:
        name: the metric's name, or None for no metric.
        where: the callback that monitors, for messages.

    Attributes:
        name: the name under which the metric was last logged.
        is_validated: whether validation logs the metric, as far as was seen.
        name_resolver: maps the chosen name and the logged metrics to the name to read; None where
            the two names are the same.
    """

    def __init__(self, name: str | None, where: str) -> None:
        self.name = self._chosen = name
        self.name_resolver: Callable[[str, Container[str]], str] | None = None
        self.is_validated = False
        self._where = where
        self._value_before: Any = None
        self._is_warned = False
        self._has_validation_step = False

    def note_train_start(self, trainer: Trainer, module: Module) -> None:
        """Advise of a validation metric that no validation of this fit can log."""
        self._has_validation_step = _has_validation_step(module)
        if advise_on_missing_validation(self.name, self._where, trainer):
            self._is_warned = True

    def note_validation_start(self, trainer: Trainer) -> None:
        """Store the metric's value before a validation or sanity check."""
        self._resolve_name(trainer)
        self._value_before = trainer.callback_metrics.get(self.name or "")

    def note_validation_end(self, trainer: Trainer) -> None:
        """Note whether the validation logged the metric."""
        self._resolve_name(trainer)
        # compare identities: a validation that logs an equal value again stores a new object
        if trainer.callback_metrics.get(self.name or "") is not self._value_before:
            self.is_validated = True
        if self.name not in (None, "epoch", "step"):
            advise_on_misspelt_monitor(self.name or "", self._where, trainer)

    def is_to_come(self, trainer: Trainer) -> bool:
        """Return whether a validation that logs the metric follows the current batch."""
        if self.name is None or not is_last_batch_of_epoch(trainer):
            return False
        # a metric that nothing has logged so far is expected from the validation
        is_logged_by_validation = self.is_validated or self.name not in monitorable_metrics(trainer)
        return is_logged_by_validation and validates_after_epoch(trainer)

    def score(self, trainer: Trainer) -> Tensor | None:
        """Return the metric's value, or None with one warning if no validation has logged it yet.

        In a fit without validations that a validation would have logged it is an assumption: by its
        name, or since the module has a `validation_step`.

        Raises:
            MetricError: it was not logged although a validation has run, or is none of validations,
                or is not a single number.
        """
        self._resolve_name(trainer)
        metrics, name = monitorable_metrics(trainer), self.name or ""
        if name in metrics:
            return as_score(metrics[name], name, self._where)
        message = missing_monitor_message(
            name,
            self._where,
            trainer.callback_metrics,
            lacks_validation=lacks_validation(name, trainer),
        )
        is_without = not has_validation(trainer)
        is_of_validation = self._has_validation_step or lacks_validation(name, trainer)
        # no validation is to come, or was left out, that could log it for the first time
        if trainer.progress.validated_at >= 0 or (is_without and not is_of_validation):
            raise MetricError(message)
        if not self._is_warned:
            self._is_warned = True
            if is_without:
                warn(
                    f"{message} {_VALIDATION_CURE} Without it no checkpoint is ranked.",
                    TrainerHooksWarning,
                )
                return None
            # the sanity check logged it: only the moment is wrong, and no other name is meant
            cause = (
                f"monitor {name!r} of {self._where}: only a validation logs it, and none has run."
                if self.is_validated
                else message
            )
            hint = "Until the first validation has run, no checkpoint is ranked by it."
            warn(f"{cause} {hint}", TrainerHooksWarning)
        return None

    def _resolve_name(self, trainer: Trainer) -> None:
        """Resolve the name under which the metric is logged now."""
        if self.name_resolver is not None and self._chosen is not None:
            self.name = self.name_resolver(self._chosen, trainer.callback_metrics)


def monitorable_metrics(trainer: Trainer) -> dict[str, Any]:
    """Return the values to monitor and to use in file names: the metrics and two counters.

    `epoch` and `step` are the trainer's counters, even if metrics of these names were logged.
    """
    counters = {"epoch": trainer.current_epoch, "step": trainer.global_step}
    return {**trainer.callback_metrics, **counters}


def resolve_metric_name(watched: str, logged: Container[str]) -> str:
    """Return the name under which a monitored metric was logged; `watched` itself if unknown.

    pytorch-accelerated's `eval_loss_epoch` stands for `val_loss` where no metric of its own name
    was logged, and `train_loss_epoch` for `train_loss`; with a prefix, such as `ema_model_`,
    likewise.
    """
    names = [watched]
    for ending, others in _ACCELERATED_NAMES.items():
        if watched.endswith(ending):
            names += [watched.removesuffix(ending) + other for other in others]
    return next((name for name in names if name in logged), watched)


def missing_monitor_message(
    monitor: str,
    where: str,
    logged: Iterable[str],
    *,
    lacks_validation: bool = False,
    awaits_validation: bool = False,
) -> str:
    """Return the message for a monitor that is not among the `logged` metrics.

    Args:
        monitor: the monitored metric's name.
        where: the callback that monitors.
        logged: the names that were logged.
        lacks_validation: whether only a validation could log it, and the fit runs none.
        awaits_validation: whether the fit's first validation, which may log it, is still to come.
    """
    names = sorted(logged)
    listed = f"logged so far: {', '.join(map(repr, names))}" if names else "nothing was logged yet"
    hint = did_you_mean(monitor, names)
    if awaits_validation:
        cure = (
            " No validation has run yet: if only that logs it, let the first one run before the "
            f"metric is needed.{hint}"
        )
    elif lacks_validation:
        cure = f" This fit runs no validation that could log it. {_VALIDATION_CURE}"
    else:
        cure = f"{hint} Call self.log({monitor!r}, ...) in the module, or choose another monitor."
    return f"monitor {monitor!r} of {where}: it must be a metric that was logged; {listed}.{cure}"


def advise_on_misspelt_monitor(monitor: str, where: str, trainer: Trainer) -> None:
    """Warn after the sanity check if it logged a metric whose name is almost the monitor's.

    A monitor may be a metric of the training, which has logged nothing by then; so this is advice
    and no error.

    Args:
        monitor: the monitored metric's name.
        where: the callback that monitors, for the message.
        trainer: the trainer of the run.
    """
    logged = trainer.callback_metrics
    similar = difflib.get_close_matches(monitor, list(logged), n=1, cutoff=_SIMILARITY)
    if trainer.sanity_checking and similar and monitor not in logged:
        warn(
            f"monitor {monitor!r} of {where}: the sanity check logged {similar[0]!r} and no such "
            f"metric. If {similar[0]!r} is meant, stop now and choose it.",
            TrainerHooksAdvice,
        )


def advise_on_mode(monitor: str | None, mode: str, where: str) -> None:
    """Warn if the mode is the opposite of that which a metric's name says, as for a loss "max".

    Args:
        monitor: the monitored metric's name, if any.
        mode: `"min"` or `"max"`.
        where: the callback that monitors, for the message.
    """
    name = monitor or ""
    words = {word.lower() for word in (*_WORD.findall(name), *re.split("[^A-Za-z0-9]", name))}
    if mode == "min" and words & _MORE_IS_BETTER and not words & _LESS_IS_BETTER:
        warn(
            f'monitor {monitor!r} of {where}: with mode="min", which is the default, a lower value '
            f'is taken for a better one. If more is better, write {where}(..., mode="max").',
            TrainerHooksAdvice,
        )
    if mode == "max" and words & _LESS_IS_BETTER and not words & (_MORE_IS_BETTER | _TURNED):
        warn(
            f'monitor {monitor!r} of {where}: with mode="max" a higher value is taken for a better '
            f'one. If less is better, write {where}(..., mode="min"), which is the default.',
            TrainerHooksAdvice,
        )


def advise_on_missing_validation(monitor: str | None, where: str, trainer: Trainer) -> bool:
    """Return whether a validation metric is monitored in a fit without validations, and warn of it.

    Call it before the first batch. A callback or `training_step` may still log a metric of this
    name; so this is advice and no error.

    Args:
        monitor: the monitored metric's name, if any.
        where: the callback that monitors, for the message.
        trainer: the trainer of the run.
    """
    if lacks_validation(monitor or "", trainer) and monitor not in trainer.callback_metrics:
        warn(
            f"monitor {monitor!r} of {where}: this fit runs no validation that could log it. "
            f"{_VALIDATION_CURE}",
            TrainerHooksAdvice,
        )
        return True
    return False


def require_validation(monitor: str, where: str, trainer: Trainer, module: Module) -> None:
    """Make sure before the first batch that a validation which logs the metric can run.

    Raises:
        MetricError: it is a metric of validations by its name, the module has a `validation_step`,
            and this fit runs no validation.
    """
    is_missing = lacks_validation(monitor, trainer) and monitor not in trainer.callback_metrics
    if is_missing and _has_validation_step(module):
        raise MetricError(
            missing_monitor_message(monitor, where, trainer.callback_metrics, lacks_validation=True)
        )


def _has_validation_step(module: object) -> bool:
    return isinstance(module, Module) and defines(module, "validation_step", Module)


def lacks_validation(monitor: str, trainer: Trainer) -> bool:
    """Return whether a metric is one of validations, by its name, and the fit runs none."""
    first_word = _WORD.match(monitor)
    is_of_validation = first_word is not None and first_word[0].lower() in _OF_VALIDATION
    return is_of_validation and not has_validation(trainer)


def as_score(value: Any, monitor: str, where: str) -> Tensor:
    """Return a monitored value as a detached tensor without dimensions, on the CPU.

    Raises:
        MetricError: it is not exactly one real number.
    """
    score = torch.as_tensor(value).detach().cpu()
    if score.numel() != 1 or score.is_complex():
        raise MetricError(
            f"value {value!r} of monitor {monitor!r}, watched by {where}: it must be a single real "
            "number. Log one, such as the mean."
        )
    # a copy: on a CPU neither detach() nor cpu() makes one, and the metric may go on changing
    return score.reshape(()).clone()


def a_tensor_of_one_number(value: object) -> bool:
    """Return whether a value of a saved state is a score, as `as_score` returns it."""
    return isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex()


def is_better(value: float, other: float, mode: str, margin: float = 0.0) -> bool:
    """Return whether `value` beats `other` by more than `margin`; NaN never beats anything."""
    # comparisons with NaN are False both ways, so NaN needs its own rules
    if math.isnan(value):
        return False
    if math.isnan(other):
        return True
    return value + margin < other if mode == "min" else value - margin > other


def has_validation(trainer: Trainer) -> bool:
    """Return whether this fit runs validations."""
    return sum(trainer.num_val_batches) > 0


def _interval_is_epoch(trainer: Trainer) -> bool:
    # the int 1 means one batch and the float 1.0 one epoch, although 1 == 1.0
    interval = trainer.val_check_interval
    return isinstance(interval, float) and interval == 1.0


def is_last_batch_of_epoch(trainer: Trainer) -> bool:
    """Return whether the epoch ends with the current batch: by its length or by a stop request."""
    # the trainer puts a stop off until both least numbers are reached
    is_stop_followed = (
        trainer.should_stop
        and trainer.current_epoch >= trainer.min_epochs
        and trainer.global_step >= trainer.min_steps
    )
    return trainer.is_last_batch or is_stop_followed


def is_validation_epoch(trainer: Trainer) -> bool:
    """Return whether `check_val_every_n_epoch` includes the current epoch."""
    every = trainer.check_val_every_n_epoch
    return every is None or (trainer.current_epoch + 1) % every == 0


def validates_after_epoch(trainer: Trainer) -> bool:
    """Return whether a validation follows at the end of this epoch.

    Valid at the epoch's last batch. A stopping run validates once more, whatever the interval;
    a requested validation runs whatever else is due.
    """
    progress = trainer.progress
    # a validation inside the epoch may have run at this very batch
    is_validated = progress.validated_at == progress.batches_completed
    at_the_end = trainer.should_stop or _interval_is_epoch(trainer)
    is_due = progress.is_validation_requested or (is_validation_epoch(trainer) and at_the_end)
    return has_validation(trainer) and is_due and not is_validated


def acts_at_train_epoch_end(trainer: Trainer, choice: bool | None) -> bool:
    """Return whether a monitoring callback acts at the end of training epochs, not of validations.

    Args:
        trainer: the trainer of the run.
        choice: the user's choice. With None it acts at the end of training epochs where each epoch
            has one validation, at its end, and where there is no validation.
    """
    if choice is not None:
        return choice
    if not has_validation(trainer):
        return True
    return _interval_is_epoch(trainer) and trainer.check_val_every_n_epoch == 1
