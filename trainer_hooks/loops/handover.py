"""The hand-over of logged values, to the loggers and to the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.context import present_step
from trainer_hooks.metrics import floats

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.context import RunContext

__all__ = ["hand_over"]


def hand_over(
    context: RunContext,
    metrics: dict[str, Tensor],
    others: dict[str, Tensor],
    step: int | None = None,
) -> None:
    """Give values that are due to the loggers, and these and others to the history.

    Where nobody listens nothing is copied from the device: the history does that later, for many
    values together.

    Args:
        context: the run.
        metrics: what the loggers are given.
        others: what was logged with `logger=False`.
        step: the place on the x axis; the number of windows done so far unless given.
    """
    trainer, history = context.trainer, context.training.history
    place = present_step(context.state.fn, context.training.progress) if step is None else step
    if others:
        history.defer(others, place)
    if not metrics:
        return
    if trainer.loggers or "on_log" in context.hooks.listened:
        epoch = context.training.progress.epochs_completed if step is None else None
        trainer.log_metrics(floats(metrics), step, epoch=epoch)
    else:
        history.defer(metrics, place)
