"""Adapter of Lightning's and Fabric's loggers, which a Trainer takes as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.module_adapter import take_class_name
from trainer_hooks.loggers.adapter import LoggerAdapter

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.loggers import Logger


def adapt_logger(foreign: Any) -> Logger:
    """Return the adapter of a logger of Lightning."""
    return LightningLoggerAdapter(foreign)


class LightningLoggerAdapter(LoggerAdapter):
    """Adapter of a logger of Lightning or Fabric.

    Args:
        foreign: the logger.
    """

    def __init__(self, foreign: Any) -> None:
        super().__init__(foreign)
        take_class_name(self, foreign)

    @property
    def lightning_object(self) -> Any:
        """The logger, as its user knows it."""
        return self.foreign

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:
        """Log the graph of the module, a LightningModule as the user passed it."""
        super().log_graph(getattr(model, "lightning_object", model), input_array)
