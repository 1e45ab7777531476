"""Bound the gradients of an optimizer."""

from __future__ import annotations

from typing import Any

from torch.nn import utils

from trainer_hooks.errors import OptionError

__all__ = ["clip_gradients"]


def clip_gradients(optimizer: Any, value: float | None, algorithm: str | None) -> None:
    """Bound the gradients of an optimizer's parameters, by norm or by value.

    Raises:
        OptionError: the algorithm is neither.
    """
    if algorithm not in (None, "norm", "value"):
        raise OptionError(
            f"clip_gradients(gradient_clip_algorithm={algorithm!r}): must be 'norm' or 'value'."
        )
    if value is None:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if algorithm == "value":
        utils.clip_grad_value_(parameters, value)
    else:
        utils.clip_grad_norm_(parameters, value)
