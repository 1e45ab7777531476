"""What StochasticWeightAveraging makes sure of: its arguments, and what it is used with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.errors import OptimizationError, OptionError

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = [
    "check_annealing",
    "check_epoch_start",
    "check_swa_lrs",
    "first_epoch",
    "require_swappable",
]


def check_swa_lrs(lrs: object, where: str, groups: int | None = None) -> float | list[float]:
    """Return a copy of `lrs` if it is a positive number or a list of them.

    Args:
        lrs: the value.
        where: whose argument it is.
        groups: how many there must be in a list, where that is known.

    Raises:
        OptionError: it is not.
    """
    several = list(lrs) if isinstance(lrs, list | tuple) else [lrs]
    if not several or not all(map(_is_positive, several)):
        raise OptionError(
            f"swa_lrs {lrs!r} of {where}: it must be a positive number, or a list of them. Pass "
            "the learning rate to go to, such as 0.05."
        )
    if groups is not None and len(several) != groups:
        raise OptionError(
            f"swa_lrs {lrs!r} of {where}: the optimizer has {groups} parameter groups, so there "
            f"must be as many. Pass a list of {groups}, or one number for all."
        )
    return several if isinstance(lrs, list | tuple) else lrs  # type: ignore[return-value]


def _is_positive(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]


def check_epoch_start(start: object, where: str) -> int | float:
    """Return `start` if it is an epoch counted from 1, or a share.

    Raises:
        OptionError: it is neither.
    """
    is_epoch = isinstance(start, int) and not isinstance(start, bool) and start >= 1
    is_share = isinstance(start, float) and 0 <= start <= 1
    if not is_epoch and not is_share:
        raise OptionError(
            f"swa_epoch_start {start!r} of {where}: it must be an int of at least 1, or a float "
            "from 0.0 to 1.0. Pass the first epoch to average at, counted from 1, or a share of "
            "max_epochs."
        )
    return start  # type: ignore[return-value]


def check_annealing(epochs: object, strategy: object, where: str) -> None:
    """Make sure that the learning rate can be annealed so.

    Raises:
        OptionError: it cannot.
    """
    check_count("annealing_epochs", epochs, where)
    check_choice("annealing_strategy", strategy, where, ("cos", "linear"))


def first_epoch(start: int | float, max_epochs: int, where: str) -> int:
    """Return the index of the first epoch to average at.

    Raises:
        OptionError: it is a share of no number.
    """
    if isinstance(start, float) and max_epochs < 0:
        raise OptionError(
            f"swa_epoch_start {start!r} of {where}: it is a share of max_epochs, and this trainer "
            "has no such limit. Pass an int, the first epoch to average at."
        )
    epoch = int(max_epochs * start) if isinstance(start, float) else start
    return max(epoch - 1, 0)


def require_swappable(trainer: Trainer) -> None:
    """Make sure that there is one optimizer and at most one scheduler.

    Raises:
        OptimizationError: there are more or fewer.
    """
    optimizers, schedulers = len(trainer.optimizers), len(trainer.lr_scheduler_configs)
    if optimizers != 1 or schedulers > 1:
        raise OptimizationError(
            f"StochasticWeightAveraging with {optimizers} optimizers and {schedulers} schedulers: "
            "it takes one optimizer and at most one scheduler. Return as many from "
            "configure_optimizers, or use WeightAveraging."
        )
