"""DummyLogger and RankZeroLoggerProxy: loggers that write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping


class DummyExperiment:
    """An object that accepts any call, item and attribute, and does nothing."""

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)  # copying and pickling ask for some, and must not get one
        return self

    def __call__(self, *args: object, **kwargs: object) -> Self:  # noqa: ARG002, D102
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
    """A logger that accepts everything and writes nothing, as with `Trainer(fast_dev_run=True)`.

    Its `experiment` accepts any call, so that calls of a logger's library run dry, too.
    """

    def __init__(self) -> None:
        self._experiment = DummyExperiment()

    @property
    def name(self) -> str:
        """Return an empty string."""
        return ""

    @property
    def version(self) -> str:
        """Return an empty string."""
        return ""

    @property
    def experiment(self) -> Any:
        """Return an object that accepts any call and does nothing."""
        return self._experiment

    def log_metrics(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, whatever the arguments are."""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, whatever the arguments are."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # in a copy that has no `_experiment` yet this would recurse
            raise AttributeError(name)
        return self._experiment

    def __getitem__(self, index: object) -> Self:
        return self


class RankZeroLoggerProxy(Logger):
    """Stands for rank 0's logger on another rank: writes nothing, but knows its folders.

    Args:
        name: the name of rank 0's logger.
        version: its version.
        save_dir: its `save_dir`.
        log_dir: its `log_dir`.
        run_dir: the folder that holds the checkpoints of its run.
        own: the logger of this process that the proxy replaces; None if there is none.

    Attributes:
        own: the replaced logger; never itself a proxy.
        run_dir: the folder that holds the checkpoints of rank 0's run.
    """

    def __init__(
        self,
        name: str | None,
        version: Any,
        save_dir: str | None,
        log_dir: str | None,
        run_dir: str,
        own: Logger | None = None,
    ) -> None:
        self.own: Logger | None = own.own if isinstance(own, RankZeroLoggerProxy) else own
        self._name, self._version = name, version
        self._save_dir, self._log_dir, self.run_dir = save_dir, log_dir, run_dir

    @property
    def name(self) -> str | None:
        """Return the name of rank 0's logger."""
        return self._name

    @property
    def version(self) -> int | str | None:
        """Return the version of rank 0's logger."""
        version: int | str | None = self._version
        return version

    @property
    def save_dir(self) -> str | None:
        """Return the folder of all runs of rank 0's logger."""
        return self._save_dir

    @property
    def log_dir(self) -> str | None:
        """Return the folder of the run of rank 0's logger."""
        return self._log_dir

    @property
    def experiment(self) -> Any:
        """Return an object that accepts any call and does nothing."""
        return DummyExperiment()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Do nothing."""
