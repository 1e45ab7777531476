"""Adapter of Lightning's and Fabric's loggers, which a Trainer takes as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.module_adapter import take_class_name
from trainer_hooks.loggers import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


def adapt_logger(foreign: Any) -> Logger:
    """Return the adapter of a logger of Lightning."""
    return LightningLoggerAdapter(foreign)


class LightningLoggerAdapter(Logger):
    """Adapter of a logger of Lightning or Fabric.

    Args:
        foreign: the logger.
    """

    def __init__(self, foreign: Any) -> None:
        self.lightning_object = foreign
        take_class_name(self, foreign)

    @property
    def name(self) -> str | None:
        """The name of the experiment."""
        name: str | None = self.lightning_object.name
        return name

    @property
    def version(self) -> int | str | None:
        """The number or name of the run."""
        version: int | str | None = self.lightning_object.version
        return version

    @property
    def save_dir(self) -> str | None:
        """The root folder, which Fabric's loggers call `root_dir`."""
        foreign = self.lightning_object
        folder: str | None = getattr(foreign, "save_dir", getattr(foreign, "root_dir", None))
        return folder

    @property
    def log_dir(self) -> str | None:
        """The run's folder; the root folder of a logger that has none."""
        folder: str | None = getattr(self.lightning_object, "log_dir", self.save_dir)
        return folder

    @property
    def experiment(self) -> Any:
        """The object that writes, such as a SummaryWriter."""
        return self.lightning_object.experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics."""
        # by name, as Lightning does: a logger may take them by name alone
        self.lightning_object.log_metrics(metrics=dict(metrics), step=step)

    def log_hyperparams(self, params: Any, metrics: Any = None) -> None:
        """Log hyperparameters."""
        # of Lightning's loggers only that for TensorBoard takes metrics
        arguments = (params,) if metrics is None else (params, metrics)
        self.lightning_object.log_hyperparams(*arguments)

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:
        """Log the graph of the module, a LightningModule as the user passed it."""
        self.lightning_object.log_graph(getattr(model, "lightning_object", model), input_array)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Report a saved checkpoint; Fabric's loggers take no such report."""
        report = getattr(self.lightning_object, "after_save_checkpoint", None)
        if report is not None:
            report(checkpoint_callback)

    def save(self) -> None:
        """Write the values in memory."""
        self.lightning_object.save()

    def finalize(self, status: str) -> None:
        """End the run's log.

        Args:
            status: how the run ended.
        """
        self.lightning_object.finalize(status)

    def __getattr__(self, name: str) -> Any:
        if name == "lightning_object":  # not set yet, as in a copy: no endless recursion
            raise AttributeError(name)
        return getattr(self.lightning_object, name)
