"""Logger: where a run's metrics and hyperparameters are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

__all__ = ["Logger"]


class Logger(ABC):
    """Write metrics and hyperparameters somewhere. Only `log_metrics` must be defined.

    The trainer calls a logger on the main process only, with plain numbers.
    """

    @property
    def name(self) -> str | None:
        """Return the name of the experiment."""
        return type(self).__name__

    @property
    def version(self) -> int | str | None:
        """Return what tells this run from others of the same name."""
        return None

    @property
    def save_dir(self) -> str | None:
        """Return the folder under which the files of all runs lie, if there are files."""
        return None

    @property
    def log_dir(self) -> str | None:
        """Return the folder of this run; asking for it creates nothing."""
        return self.save_dir

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Take the values of one moment; `step` is their place on the x axis."""

    def log_hyperparams(  # noqa: B027 - optional
        self, params: Mapping[str, Any] | Namespace
    ) -> None:
        """Take the hyperparameters of the run; a later call adds to them."""

    def save(self) -> None:  # noqa: B027 - optional
        """Write out what is still held in memory."""

    def finalize(self, status: str) -> None:  # noqa: ARG002 - for those who override it
        """Finish after a run; `status` is `"success"` or `"failed"`.

        The logger may be used again afterwards: a trainer can fit twice.
        """
        self.save()
