"""DummyLogger: stands where the loggers of a dry run would, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DummyLogger"]


class _Nothing:
    """Takes any call, item and attribute, and does nothing."""

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)  # who copies or pickles it asks for some
        return self

    def __call__(self, *args: object, **kwargs: object) -> Self:  # noqa: ARG002
        return self

    def __getitem__(self, key: object) -> Self:
        return self

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class DummyLogger(Logger):
    """Take everything and write nothing, as with `Trainer(fast_dev_run=True)`.

    `experiment` takes any call, so that what a script does with its logger's library runs dry, too.
    """

    def __init__(self) -> None:
        self._experiment = _Nothing()

    @property
    def name(self) -> str:
        """Return an empty text."""
        return ""

    @property
    def version(self) -> str:
        """Return an empty text."""
        return ""

    @property
    def experiment(self) -> Any:
        """Return an object that takes any call, and does nothing."""
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._experiment

    def __getitem__(self, index: object) -> Self:
        return self
