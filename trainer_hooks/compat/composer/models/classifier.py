"""ComposerClassifier: a ComposerModel around a network that classifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from trainer_hooks.compat.composer.models.base import ComposerModel
from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

__all__ = ["ComposerClassifier"]


class ComposerClassifier(ComposerModel):
    """Train a network on batches of inputs and targets.

    Args:
        module: the network.
        num_classes: how many classes; `module.num_classes` where it has one.
        train_metrics: a metric or a collection; by default `MulticlassAccuracy`.
        val_metrics: likewise; by default `CrossEntropy` and `MulticlassAccuracy`.
        loss_fn: a function of outputs and targets; by default the cross entropy, of targets that
            are classes or shares of them.

    Raises:
        ModuleError: nobody says how many classes there are.
    """

    def __init__(
        self,
        module: nn.Module,
        num_classes: int | None = None,
        train_metrics: Any = None,
        val_metrics: Any = None,
        loss_fn: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.num_classes: int | None = getattr(module, "num_classes", num_classes)
        self._loss_fn: Callable[..., Tensor] = loss_fn or functional.cross_entropy
        if self.num_classes is None and (train_metrics is None or val_metrics is None):
            raise ModuleError(
                "ComposerClassifier(num_classes=None): nobody says how many classes there are. "
                "Pass num_classes, or both train_metrics and val_metrics."
            )
        self.train_metrics = _accuracy(self.num_classes) if train_metrics is None else train_metrics
        self.val_metrics = val_metrics
        if val_metrics is None:
            from torchmetrics import MetricCollection

            from trainer_hooks.compat.composer.metrics import CrossEntropy

            self.val_metrics = MetricCollection([CrossEntropy(), _accuracy(self.num_classes)])

    def forward(self, batch: Any) -> Any:
        """Return what the network makes of the inputs."""
        return self.module(batch[0])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the loss of outputs and targets."""
        return self._loss_fn(outputs, batch[1], *args, **kwargs)

    def get_metrics(self, is_train: bool = False) -> dict[str, Any]:
        """Return the metrics by the names of their classes."""
        metrics = self.train_metrics if is_train else self.val_metrics
        items = getattr(metrics, "items", None)
        return {type(metrics).__name__: metrics} if items is None else dict(items())

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        """Update a metric with outputs and targets."""
        with torch.no_grad():
            metric.update(outputs, batch[1])


def _accuracy(classes: int | None) -> Any:
    from torchmetrics.classification import MulticlassAccuracy

    return MulticlassAccuracy(num_classes=classes, average="micro")
