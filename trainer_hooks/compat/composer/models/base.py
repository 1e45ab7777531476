"""ComposerModel: a model that knows its loss and its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["ComposerModel"]


class ComposerModel(nn.Module):
    """Define `forward(batch)` and `loss(outputs, batch)`, and what else it needs.

    Attributes:
        logger: what logs to all destinations, from `Event.INIT` on.
    """

    logger: Logger | None = None

    def forward(self, batch: Any) -> Any:
        """Return what `loss` and the metrics are computed of."""
        raise ModuleError(
            f"{type(self).__qualname__} has no forward: define forward(self, batch), which takes a "
            "batch of the loader as it is."
        )

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the loss: a tensor, several, or a dict of them whose `total` is learned from."""
        raise ModuleError(
            f"{type(self).__qualname__} has no loss: define loss(self, outputs, batch)."
        )

    def eval_forward(self, batch: Any, outputs: Any = None) -> Any:
        """Return what metrics are computed of: the outputs if there are any, or the forward's."""
        return self.forward(batch) if outputs is None else outputs

    def get_metrics(self, is_train: bool) -> dict[str, Any]:
        """Return the metric objects of the training or evaluation; none unless overridden."""
        return {}

    def update_metric(self, batch: Any, outputs: Any, metric: Any) -> dict[str, Any] | None:
        """Update a metric with a batch and what `eval_forward` returned for it."""
        raise ModuleError(
            f"{type(self).__qualname__} has metrics and no update_metric: define "
            "update_metric(self, batch, outputs, metric)."
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the logger out of copies and pickles."""
        return {name: value for name, value in self.__dict__.items() if name != "logger"}
