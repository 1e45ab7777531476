"""Figures: metric objects updated, computed and logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["compute", "log_batch", "log_progress", "train_metrics", "update_metrics"]


def update_metrics(state: State, model: Any, metrics: dict[str, Any], outputs: Any) -> None:
    """Update metrics with the batch that the state has."""
    for metric in metrics.values():
        state.metric_outputs = model.update_metric(state.batch, outputs, metric) or {}


def train_metrics(state: State, model: Any) -> None:
    """Update the metrics of the training with a microbatch that was learned from."""
    if not state.train_metrics:
        return
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            outputs = model.eval_forward(state.batch, state.outputs)
            update_metrics(state, model, state.train_metrics, outputs)
    finally:
        for part, mode in modes:
            part.training = mode


def compute(state: State, logger: Logger, label: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """Compute metrics, log them, and put their values on the state; return them."""
    values = {name: metric.compute() for name, metric in metrics.items()}
    if values:
        logger.log_metrics({f"metrics/{label}/{name}": value for name, value in values.items()})
    (state.train_metric_values if label == "train" else state.eval_metric_values).update(values)
    return values


def log_progress(state: State, logger: Logger, *, with_epoch: bool) -> None:
    """Log how far the training is, as Composer's trainer does."""
    now = state.timestamp
    names = ["batch", "sample", "batch_in_epoch", "sample_in_epoch"]
    if with_epoch:
        names.insert(0, "epoch")
    if now.token.value:
        names += ["token", "token_in_epoch"]
    logger.log_metrics({f"time/{name}": getattr(now, name).value for name in names})


def log_batch(state: State, logger: Logger, losses: dict[str, Any]) -> None:
    """Log the losses and metrics of a training batch."""
    size = state.device_train_microbatch_size
    if size is not None:
        logger.log_metrics({"trainer/device_train_microbatch_size": size})
    if losses:
        state.total_loss_dict = {name: loss.item() for name, loss in losses.items()}
        logger.log_metrics(dict(state.total_loss_dict))
    compute(state, logger, "train", state.train_metrics)
