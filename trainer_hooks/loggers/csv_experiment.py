"""CSVExperiment: `CSVLogger.experiment`, by which Lightning's scripts write rows themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CSVExperiment"]


class _Writes(Protocol):
    """What a `CSVLogger` has."""

    @property
    def log_dir(self) -> str: ...

    @property
    def unwritten(self) -> list[dict[str, float]]: ...

    @property
    def columns(self) -> list[str]: ...

    @property
    def hparams(self) -> dict[str, Any]: ...

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None: ...

    def log_hyperparams(self, params: Mapping[str, Any]) -> None: ...

    def save(self) -> None: ...


class CSVExperiment:
    """The files of a `CSVLogger`; all that is done by it the logger does.

    Args:
        logger: whose.
    """

    def __init__(self, logger: _Writes) -> None:
        self._logger = logger

    @property
    def log_dir(self) -> str:
        """The folder of the run."""
        return self._logger.log_dir

    @property
    def metrics_file_path(self) -> str:
        """The file with the metrics."""
        return f"{self._logger.log_dir}/metrics.csv"

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The rows that are not written yet."""
        return self._logger.unwritten

    @property
    def metrics_keys(self) -> list[str]:
        """The names of the metrics in the file."""
        return self._logger.columns

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyperparameters that were logged."""
        return self._logger.hparams

    def log_metrics(self, metrics_dict: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        self._logger.log_metrics(metrics_dict, step)

    def log_hparams(self, params: Mapping[str, Any]) -> None:
        """Add hyperparameters."""
        self._logger.log_hyperparams(params)

    def save(self) -> None:
        """Write the rows that are held in memory."""
        self._logger.save()
