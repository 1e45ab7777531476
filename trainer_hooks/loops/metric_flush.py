"""Hand the metrics that are due on to the loggers and the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.context.run_state import present_step
from trainer_hooks.metrics.scalars import floats

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.context.context import RunContext


def flush_metrics(
    context: RunContext,
    metrics: dict[str, Tensor],
    history_only: dict[str, Tensor],
    step: int | None = None,
) -> None:
    """Hand the metrics that are due on to the loggers and the history.

    Without a logger and without a callback on `on_log` no value is copied from the device: the
    history copies many of them at once, later.

    Args:
        context: the run context.
        metrics: values for the loggers and the history, by name.
        history_only: values that were logged with `logger=False`.
        step: position on the x axis; by default `present_step`: in a fit the index of the last
            completed accumulation window, from 0 on.
    """
    trainer, history = context.trainer, context.training.history
    x = present_step(context.state.fn, context.training.progress) if step is None else step
    if history_only:
        history.defer(history_only, x)
    if not metrics:
        return
    if trainer.loggers or "on_log" in context.hooks.listened:
        epoch = context.training.progress.epochs_completed if step is None else None
        trainer.log_metrics(floats(metrics), step, epoch=epoch)
    else:
        history.defer(metrics, x)
