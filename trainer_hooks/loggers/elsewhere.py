"""LoggerElsewhere: stands for a logger of rank 0 in the other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LoggerElsewhere"]


class LoggerElsewhere(Logger):
    """Write nothing, and know where the logger of rank 0 writes.

    Args:
        name: that logger's name.
        version: likewise.
        save_dir: likewise.
        log_dir: likewise.
        own: the logger of this process, in whose place it is; None if it has none.

    Attributes:
        own: it, also where another one of this class was in its place.
    """

    def __init__(
        self,
        name: str | None,
        version: Any,
        save_dir: str | None,
        log_dir: str | None,
        own: Logger | None = None,
    ) -> None:
        self.own: Logger | None = own.own if isinstance(own, LoggerElsewhere) else own
        self._name, self._version = name, version
        self._save_dir, self._log_dir = save_dir, log_dir

    @property
    def name(self) -> str | None:
        """Return its name."""
        return self._name

    @property
    def version(self) -> int | str | None:
        """Return what tells its run from others."""
        found: int | str | None = self._version
        return found

    @property
    def save_dir(self) -> str | None:
        """Return the folder of its runs."""
        return self._save_dir

    @property
    def log_dir(self) -> str | None:
        """Return the folder of its run."""
        return self._log_dir

    @property
    def experiment(self) -> Any:
        """Return what takes any call, and does nothing."""
        return _Nothing()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Do nothing."""


class _Nothing:
    """Takes any call, and does nothing."""

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __call__(self, *_: Any, **__: Any) -> _Nothing:
        return self
