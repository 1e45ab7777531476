"""DummyLogger: takes everything and keeps nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DummyExperiment", "DummyLogger"]


class DummyExperiment:
    """Stands for the object of a library: any method of it may be called, and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):  # what copies and notebooks ask for is not there
            raise AttributeError(name)
        return _nothing

    def __getitem__(self, index: Any) -> DummyExperiment:
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        pass


class DummyLogger(Logger):
    """A logger of which every call does nothing, those on its `experiment` too.

    Code that logs through `trainer.logger` runs as it is where nothing is to be kept.

    Example::

        trainer = Trainer(logger=DummyLogger())
    """

    @property
    def name(self) -> str:
        """Return nothing: there is no experiment."""
        return ""

    @property
    def version(self) -> str:
        """Return nothing."""
        return ""

    @property
    def experiment(self) -> DummyExperiment:
        """Return what takes any call."""
        return DummyExperiment()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return _nothing

    def __getitem__(self, index: Any) -> DummyLogger:
        return self


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""
