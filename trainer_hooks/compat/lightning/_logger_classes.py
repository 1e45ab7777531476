"""Loggers with Lightning's default folder, `lightning_logs`.

The module is private, so that command lines do not take them for a second `CSVLogger`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import loggers
from trainer_hooks.loggers.conversion import HPARAMS_YAML, write_hparams
from trainer_hooks.loggers.run_folder import FolderLogger

if TYPE_CHECKING:
    import os

__all__ = ["LOG_FOLDER", "CSVLogger", "TensorBoardLogger"]

LOG_FOLDER = "lightning_logs"


class _HparamsFileLogger(FolderLogger):
    """A logger whose folder has an `hparams.yaml` after a run, also without hyperparameters."""

    NAME_HPARAMS_FILE: ClassVar[str] = HPARAMS_YAML

    def finalize(self, status: str) -> None:
        """Finish a run, as the base class does, and write an empty `hparams.yaml` if none is there.

        Args:
            status: how the run ended.
        """
        super().finalize(status)
        folder = Path(self.log_dir)
        if folder.is_dir() and not (folder / HPARAMS_YAML).exists():
            self.run_folder.claim()
            write_hparams(folder, {})


class CSVLogger(_HparamsFileLogger, loggers.CSVLogger):
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


class TensorBoardLogger(_HparamsFileLogger, loggers.TensorBoardLogger):
    """A `trainer_hooks.loggers.TensorBoardLogger` that writes into `lightning_logs` by default."""

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
