"""What callbacks that watch a metric share: checks, lookup, and when a validation is due."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, OptionError, TrainerHooksAdvice, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainer_hooks.context import Trainer

__all__ = [
    "acts_at_train_epoch_end",
    "advise_on_monitor",
    "as_score",
    "check_choice",
    "check_count",
    "check_monitor",
    "check_number",
    "check_several",
    "check_text",
    "decided_by_first",
    "has_validation",
    "is_batch_the_last",
    "is_better",
    "is_training",
    "missing_monitor",
    "validates_after_epoch",
]

T = TypeVar("T")
_MODES = ("min", "max")
_ALL_BUT = 0.85
"""How like each other a misspelt name and the one that is meant are, as `difflib` measures it."""


def check_choice(name: str, value: object, where: str, choices: tuple[object, ...] = _MODES) -> Any:
    """Return `value` if it is one of `choices`.

    Raises:
        OptionError: it is not; 1 and 0 do not count as True and False.
    """
    for choice in choices:
        if value == choice and type(value) is type(choice):
            return value
    texts = [choice for choice in choices if isinstance(choice, str)]
    hint = nearest(value, texts) if isinstance(value, str) else ""
    raise OptionError(
        f"{name} {value!r} of {where}: it must be one of {', '.join(map(repr, choices))}."
        f"{hint} Choose one of them."
    )


def check_count(name: str, value: object, where: str, least: int = 0) -> int:
    """Return `value` if it is a whole number of at least `least`.

    Raises:
        OptionError: it is not; True and False are no numbers here.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(
            f"{name} {value!r} of {where}: it must be a whole number of at least {least}. "
            "Pass such a number."
        )
    return value


def check_number(name: str, value: object, where: str, least: float = -math.inf) -> float:
    """Return `value` if it is a finite number of at least `least`.

    Raises:
        OptionError: it is not; True and False are no numbers here.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < least:  # type: ignore[arg-type, operator]
        bound = "" if least == -math.inf else f" of at least {least}"
        raise OptionError(
            f"{name} {value!r} of {where}: it must be a finite number{bound}. Pass such a number."
        )
    return value  # type: ignore[return-value]


def check_several(
    name: str, value: object, where: str, choices: tuple[str, ...]
) -> tuple[str, ...]:
    """Return which of `choices` are meant, in the order of those; one may stand alone.

    Raises:
        OptionError: one is none of them, or there is none.
    """
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple | set | frozenset) or not several:
        raise OptionError(
            f"{name} {value!r} of {where}: it must be one or more of "
            f"{', '.join(map(repr, choices))}. Pass a list of them."
        )
    for item in several:
        check_choice(name, item, where, choices)
    return tuple(item for item in choices if item in several)


def check_text(name: str, value: object, where: str) -> str | None:
    """Return `value` if it is a text with something in it, or None.

    Raises:
        OptionError: it is neither.
    """
    if value is None or (isinstance(value, str) and value):
        return value
    raise OptionError(
        f"{name} {value!r} of {where}: it must be a non-empty text. Pass one, or None."
    )


def check_monitor(monitor: object, where: str) -> str:
    """Return `monitor` if it can be the name of a metric.

    Raises:
        OptionError: it is no text, or empty.
    """
    if not isinstance(monitor, str) or not monitor:
        raise OptionError(
            f"monitor {monitor!r} of {where}: it must be the name of a metric. Pass the name that "
            "the module gives to self.log(name, value), such as 'val_loss'."
        )
    return monitor


def missing_monitor(monitor: str, where: str, logged: Iterable[str]) -> str:
    """Return the message for a monitor that is not among the `logged` metrics."""
    names = sorted(logged)
    listed = f"logged so far: {', '.join(map(repr, names))}" if names else "nothing was logged yet"
    return (
        f"monitor {monitor!r} of {where}: it must be a metric that was logged; {listed}."
        f"{nearest(monitor, names)} Call self.log({monitor!r}, ...) in the module, or choose "
        "another monitor."
    )


def advise_on_monitor(monitor: str, where: str, trainer: Trainer) -> None:
    """Say after the sanity check where a monitor is all but the name of what it logged.

    What the training logs is not known by then, so it is no error yet.
    """
    logged = trainer.callback_metrics
    near = difflib.get_close_matches(monitor, list(logged), n=1, cutoff=_ALL_BUT)
    if trainer.sanity_checking and near and monitor not in logged:
        warn(
            f"monitor {monitor!r} of {where}: the sanity check logged {near[0]!r} and no such "
            f"metric. If {near[0]!r} is meant, stop now and choose it.",
            TrainerHooksAdvice,
        )


def as_score(value: Any, monitor: str, where: str) -> Tensor:
    """Return a monitored value as a tensor without dimensions, on the CPU and apart from any graph.

    Raises:
        MetricError: it is not exactly one number.
    """
    score = torch.as_tensor(value).detach().cpu()
    if score.numel() != 1 or score.is_complex():
        raise MetricError(
            f"value {value!r} of monitor {monitor!r}, watched by {where}: it must be a single real "
            "number. Log one, such as the mean."
        )
    return score.reshape(()).clone()


def is_better(value: float, other: float, mode: str, margin: float = 0.0) -> bool:
    """Return whether `value` beats `other` by more than `margin`; NaN loses, even against NaN."""
    if math.isnan(value):
        return False
    if math.isnan(other):
        return True
    return value + margin < other if mode == "min" else value - margin > other


def is_training(trainer: Trainer) -> bool:
    """Return whether this is a fit whose results count."""
    return trainer.state.fn == "fit" and not trainer.fast_dev_run


def decided_by_first(trainer: Trainer, decide: Callable[[], T]) -> T:
    """Return what is decided, which in several processes is the first's to do.

    All processes must call it; a value of a step, and files, may look otherwise to the others.
    """
    if trainer.world_size == 1:
        return decide()
    found: T = trainer.strategy.broadcast(decide() if trainer.is_global_zero else None)
    return found


def has_validation(trainer: Trainer) -> bool:
    """Return whether this fit validates at all."""
    return sum(trainer.num_val_batches) > 0


def _interval_is_epoch(trainer: Trainer) -> bool:
    # 1 counts batches and 1.0 epochs, although they are equal
    interval = trainer.val_check_interval
    return isinstance(interval, float) and interval == 1.0


def is_batch_the_last(trainer: Trainer) -> bool:
    """Return whether the epoch ends with the batch just done: it is all, or a stop is heeded."""
    is_heeded = (
        trainer.should_stop
        and trainer.current_epoch >= trainer.min_epochs
        and trainer.global_step >= trainer.min_steps
    )
    return trainer.is_last_batch or is_heeded


def validates_after_epoch(trainer: Trainer) -> bool:
    """Return whether a validation is still to follow, if the batch just done is its epoch's last.

    A run that is asked to stop validates once more, whatever the interval; one that is asked for a
    validation, whatever else is due.
    """
    progress, every = trainer.progress, trainer.check_val_every_n_epoch
    is_done = progress.validated_at == progress.batches_completed
    is_due = every is None or (trainer.current_epoch + 1) % every == 0
    at_the_end = trainer.should_stop or _interval_is_epoch(trainer)
    is_due = progress.is_validation_requested or (is_due and at_the_end)
    return has_validation(trainer) and is_due and not is_done


def acts_at_train_epoch_end(trainer: Trainer, choice: bool | None) -> bool:
    """Return whether a watcher acts at the end of training epochs and not after validations.

    The user's `choice` counts; without one it is so where each epoch has one validation, at its
    end, and where there is none.
    """
    if choice is not None:
        return choice
    if not has_validation(trainer):
        return True
    return _interval_is_epoch(trainer) and trainer.check_val_every_n_epoch == 1
