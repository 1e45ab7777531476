"""ComposerModel, a model with its loss and metrics, and ComposerClassifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["ComposerClassifier", "ComposerModel"]


class ComposerModel(nn.Module):
    """A model with its loss and metrics: define `forward(batch)` and `loss(outputs, batch)`.

    Attributes:
        logger: the logger that writes to all destinations, from `Event.INIT` on.
    """

    logger: Logger | None = None

    def forward(self, batch: Any) -> Any:
        """Return the outputs of a batch, from which the loss and the metrics are computed."""
        raise ModuleError(
            f"{type(self).__qualname__} has no forward: define forward(self, batch), which takes a "
            "batch of the loader as it is."
        )

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the loss: a tensor, a list of tensors, or a dict, of which `total` is trained."""
        raise ModuleError(
            f"{type(self).__qualname__} has no loss: define loss(self, outputs, batch)."
        )

    def eval_forward(self, batch: Any, outputs: Any = None) -> Any:
        """Return the outputs for the metrics: those given, or else those of the forward."""
        return self.forward(batch) if outputs is None else outputs

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        """Return the metric objects of the training or evaluation, by name; override it."""
        return {}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> dict[str, Any] | None:
        """Update a metric with a batch and the outputs of `eval_forward`."""
        raise ModuleError(
            f"{type(self).__qualname__} has metrics and no update_metric: define "
            "update_metric(self, batch, outputs, metric)."
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy or pickle, without the logger."""
        # its destinations hold open files and connections
        return {name: value for name, value in self.__dict__.items() if name != "logger"}


class ComposerClassifier(ComposerModel):
    """A classifier for batches of inputs and targets.

    Args:
        module: the network.
        num_classes: the number of classes; `module.num_classes` takes precedence.
        train_metrics: a metric or a collection; by default `MulticlassAccuracy`.
        val_metrics: a metric or a collection; by default `CrossEntropy` and `MulticlassAccuracy`.
        loss_fn: a function of outputs and targets; by default the cross entropy, whose targets are
            classes or probabilities.

    Raises:
        ModuleError: the default metrics need the number of classes, and it is unknown.
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
            # here, since a model with metrics of its own does not need torchmetrics
            from torchmetrics import MetricCollection

            from trainer_hooks.compat.composer.metrics import CrossEntropy

            self.val_metrics = MetricCollection([CrossEntropy(), _accuracy(self.num_classes)])

    def forward(self, batch: Any) -> Any:
        """Return the network's outputs for the inputs of a batch."""
        return self.module(batch[0])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the loss of the outputs for the targets of a batch."""
        return self._loss_fn(outputs, batch[1], *args, **kwargs)

    def get_metrics(self, is_train: bool = False) -> dict[str, Any]:
        """Return the metrics of the training or evaluation, by the names of their classes."""
        metrics = self.train_metrics if is_train else self.val_metrics
        # a MetricCollection has it; a single metric has the name of its class
        items = getattr(metrics, "items", None)
        return {type(metrics).__name__: metrics} if items is None else dict(items())

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> None:
        """Update a metric with the outputs and the targets of a batch."""
        with torch.no_grad():
            metric.update(outputs, batch[1])


def _accuracy(classes: int | None) -> Any:
    from torchmetrics.classification import MulticlassAccuracy

    return MulticlassAccuracy(num_classes=classes, average="micro")
