"""Schedulers of Composer's as schedulers of torch."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from torch.optim.lr_scheduler import LambdaLR

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.lr_scheduler import LRScheduler

    from trainer_hooks.compat.composer.core.state import State

__all__ = ["compile_composer_scheduler"]


def compile_composer_scheduler(
    scheduler: Callable[..., float], state: State, ssr: float = 1.0
) -> LRScheduler:
    """Return a scheduler of torch's that asks one of Composer's at each step.

    Args:
        scheduler: a function of the state, and if it likes of the scale of the schedule.
        state: the state; its optimizer is what the factor is for.
        ssr: the scale.

    Raises:
        OptionError: it is to be stretched, and takes the state alone.
    """
    takes_scale = len(inspect.signature(scheduler).parameters) > 1
    if ssr != 1.0 and not takes_scale:
        raise OptionError(
            f"Trainer(scale_schedule_ratio={ssr}): {scheduler!r} takes the state alone. Let it "
            "take (state, ssr)."
        )

    def factor(_step: int) -> float:
        return scheduler(state, ssr) if takes_scale else scheduler(state)

    return LambdaLR(state.optimizers[0], factor)
