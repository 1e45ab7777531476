"""The schedulers of random configurations: each that torch has, alone and in others."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torch.optim import lr_scheduler as torchs

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

SIMPLE: dict[str, Any] = {
    "constant": lambda o: torchs.ConstantLR(o, 0.3, total_iters=3),
    "cosine": lambda o: torchs.CosineAnnealingLR(o, T_max=5),
    "restarts": lambda o: torchs.CosineAnnealingWarmRestarts(o, T_0=3),
    "cyclic": lambda o: torchs.CyclicLR(o, 0.01, 0.05, step_size_up=2, cycle_momentum=False),
    "exponential": lambda o: torchs.ExponentialLR(o, 0.9),
    "lambda": lambda o: torchs.LambdaLR(o, lambda step: 1 / (step + 1)),
    "linear": lambda o: torchs.LinearLR(o, total_iters=4),
    "milestones": lambda o: torchs.MultiStepLR(o, [2, 3, 5], 0.5),
    "factors": lambda o: torchs.MultiplicativeLR(o, lambda step: 0.9 + 0.01 * (step % 5)),
    "polynomial": lambda o: torchs.PolynomialLR(o, total_iters=50, power=2.0),
}

KINDS = (
    *SIMPLE,
    *(f"{name}, then steps" for name in ("linear", "cyclic", "lambda", "constant")),
    *(f"{name}, chained" for name in ("exponential", "linear", "factors", "cyclic")),
)
"""Their names, as options."""


def make(kind: str, optimizer: Optimizer) -> Any:
    """Return the scheduler of a name."""
    name, _, how = kind.partition(", ")
    first: Callable[[Optimizer], Any] = SIMPLE[name]
    with warnings.catch_warnings():
        # SequentialLR sets rates before the first step, and torch says so
        warnings.simplefilter("ignore")
        if how == "then steps":
            later = torchs.StepLR(optimizer, 2, 0.8)
            return torchs.SequentialLR(optimizer, [first(optimizer), later], milestones=[3])
        if how == "chained":
            other = torchs.StepLR(optimizer, 3, 0.9)
            return torchs.ChainedScheduler([first(optimizer), other], optimizer=optimizer)
        return first(optimizer)
