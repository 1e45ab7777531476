"""Loggers of services with Lightning's default project or experiment, `lightning_logs`.

Apart from those that write files, which most runs use and which load less. The module is private,
so that command lines do not take these classes for second ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import loggers
from trainer_hooks.compat.lightning._logger_classes import LOG_FOLDER

if TYPE_CHECKING:
    import os

__all__ = ["MLFlowLogger", "WandbLogger"]


class WandbLogger(loggers.WandbLogger):
    """A `trainer_hooks.loggers.WandbLogger` whose project is `lightning_logs` by default."""

    DEFAULT_PROJECT: ClassVar[str] = LOG_FOLDER


class MLFlowLogger(loggers.MLflowLogger):
    """A `trainer_hooks.loggers.MLflowLogger` whose experiment is `lightning_logs` by default."""

    def __init__(
        self,
        experiment_name: str = LOG_FOLDER,
        run_name: str | None = None,
        tracking_uri: str | None = None,
        tags: dict[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = "./mlruns",
        log_model: bool | str = False,
        prefix: str = "",
        artifact_location: str | None = None,
        run_id: str | None = None,
        synchronous: bool | None = None,
    ) -> None:
        super().__init__(
            experiment_name, run_name, tracking_uri, tags, save_dir, log_model, prefix,
            artifact_location, run_id, synchronous,
        )  # fmt: skip
