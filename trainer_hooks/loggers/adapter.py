"""LoggerAdapter: a logger that is known by its methods, and not by its class."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

_NAMED_BY_USERS = ("CSVLogger", "TensorBoardLogger")
"""Lightning's loggers that count their runs, so that a text for a version is the user's."""


def is_logger_by_methods(given: object) -> bool:
    """Return whether an object is no Logger and can be called as one."""
    return not isinstance(given, type) and all(
        callable(getattr(given, name, None)) for name in ("log_metrics", "log_hyperparams")
    )


class LoggerAdapter(Logger):
    """Adapter of a logger with Lightning's methods, of which `log_metrics` must be there.

    Args:
        foreign: the logger.
    """

    def __init__(self, foreign: Any) -> None:
        self.foreign = foreign

    @property
    def name(self) -> str | None:
        """The name of the experiment."""
        name: str | None = getattr(self.foreign, "name", None)
        return name

    @property
    def version(self) -> int | str | None:
        """The number or name of the run."""
        version: int | str | None = getattr(self.foreign, "version", None)
        return version

    @property
    def is_version_chosen(self) -> bool:
        """Whether the version is a name: numbers are counted by loggers, and names given."""
        return isinstance(self.version, str) and type(self.foreign).__name__ in _NAMED_BY_USERS

    @property
    def save_dir(self) -> str | None:
        """The root folder, which Fabric's loggers call `root_dir`."""
        return self._folder("save_dir", "root_dir")

    @property
    def log_dir(self) -> str | None:
        """The run's folder; the root folder of a logger that has none."""
        return self._folder("log_dir") or self.save_dir

    @property
    def root_dir(self) -> str | None:
        """The folder of the experiment's runs."""
        return self._folder("root_dir")

    @property
    def has_log_dir_alone(self) -> bool:
        """Whether the run's folder is known, and no `save_dir`, as with Fabric's loggers."""
        return self._folder("save_dir") is None and self._folder("log_dir") is not None

    def _folder(self, *names: str) -> str | None:
        """Return the first of these attributes that is a path."""
        paths = (getattr(self.foreign, name, None) for name in names)
        return next((os.fspath(x) for x in paths if isinstance(x, str | os.PathLike)), None)

    @property
    def experiment(self) -> Any:
        """The object that writes, such as a SummaryWriter."""
        return self.foreign.experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics."""
        # by name, as Lightning does: a logger may take them by name alone
        self.foreign.log_metrics(metrics=dict(metrics), step=step)

    def log_hyperparams(self, params: Any, metrics: Any = None) -> None:
        """Log hyperparameters."""
        # of Lightning's loggers only that for TensorBoard takes metrics
        arguments = (params,) if metrics is None else (params, metrics)
        self.foreign.log_hyperparams(*arguments)

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:
        """Log the graph of the module."""
        self._call("log_graph", model, input_array)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Report a saved checkpoint."""
        self._call("after_save_checkpoint", checkpoint_callback)

    def save(self) -> None:
        """Write the values in memory."""
        self._call("save")

    def finalize(self, status: str) -> None:
        """End the run's log.

        Args:
            status: how the run ended.
        """
        self._call("finalize", status)

    def _call(self, method: str, *arguments: Any) -> None:
        """Call a method that not every logger has: those of Fabric lack some."""
        call = getattr(self.foreign, method, None)
        if call is not None:
            call(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name == "foreign":  # not set yet, as in a copy: no endless recursion
            raise AttributeError(name)
        return getattr(self.foreign, name)
