"""Loggers with Lightning's default folder, `lightning_logs`.

The module is private, so that command lines do not take them for a second `CSVLogger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import loggers

if TYPE_CHECKING:
    import os

__all__ = ["LOG_FOLDER", "CSVLogger", "TensorBoardLogger"]

LOG_FOLDER = "lightning_logs"


class CSVLogger(loggers.CSVLogger):
    """A `trainer_hooks.loggers.CSVLogger` that writes into `lightning_logs` unless it is named."""

    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str | None = LOG_FOLDER,
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        super().__init__(save_dir, name, version, prefix, flush_logs_every_n_steps)


class TensorBoardLogger(loggers.TensorBoardLogger):
    """A `trainer_hooks.loggers.TensorBoardLogger` that writes into `lightning_logs` by default."""

    NAME_HPARAMS_FILE: ClassVar[str] = "hparams.yaml"

    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str | None = LOG_FOLDER,
        version: int | str | None = None,
        log_graph: bool = False,
        default_hp_metric: bool = True,
        prefix: str = "",
        sub_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            save_dir, name, version, log_graph, default_hp_metric, prefix, sub_dir, **kwargs
        )
